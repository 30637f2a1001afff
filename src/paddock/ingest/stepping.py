"""What fetching and hooks have in common: a command with its folder, and what its end means."""

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from paddock.ingest import launching
from paddock.ingest.launching import CommandEnd, StepFolder
from paddock.ingest.model import StepPayload
from paddock.ingest.resources import secret_values
from paddock.ingest.source_settings import Hook, Source
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from paddock.jobs.model import JobError
from paddock.jobs.outcomes import Outcome, PermanentFailure, TransientFailure
from paddock.jobs.turn import Turn

BAD_INPUT, TRY_LATER = 64, 75
# The machine had no room for another process just now.
PRESSED = frozenset({"EAGAIN", "ENOMEM", "EMFILE", "ENFILE"})


def variables(turn: Turn[Any], settings: Source | Hook, folder: StepFolder) -> dict[str, str]:
    """What every command is told, and its secrets."""
    payload: StepPayload = turn.payload
    return {
        "PADDOCK_IN": str(folder.inputs),
        "PADDOCK_OUT": str(folder.outputs),
        "PADDOCK_SOURCE": payload.source,
        "PADDOCK_RUN": payload.run_id,
        "PADDOCK_BATCH": str(payload.batch),
        "HOME": str(folder.path),
        "TMPDIR": str(folder.path),
        **secret_values(settings.secrets),
    }


async def run_command(
    turn: Turn[Any], settings: Source | Hook, folder: StepFolder, more: Mapping[str, str]
) -> CommandEnd:
    (folder.inputs / "config.json").write_bytes(orjson.dumps(settings.config))
    return await launching.run(
        settings.command,
        environment={**more, **variables(turn, settings, folder)},
        folder=settings.folder or folder.path,
        timeout=settings.timeout,
        memory=settings.memory,
        log=turn.log.info,
        hidden=[*secret_values(settings.secrets).values()],
    )


def failure(
    who: str, ended: CommandEnd, settings: Source | Hook, *, tries: int, unknown_may_repeat: bool
) -> Outcome | None:
    """None: it did its work. One table for what an end means; `who` begins the sentence."""
    if ended.exit == 0 and ended.stopped is None:
        return None
    if ended.exit is None:
        return _not_started(who, ended, settings)
    if ended.stopped == "timeout":
        text = f"{who} took longer than {settings.timeout.total_seconds():,.0f} s and was stopped."
        return _permanent("step_timeout", text, ended, "Raise its timeout in paddock.toml, or make it do less at once.")
    if ended.exit == BAD_INPUT:
        return _permanent("bad_input", f"{who} says that its input is bad (exit {BAD_INPUT}).", ended)
    if ended.exit == TRY_LATER:
        return TransientFailure(_error("try_later", f"{who} asked to be tried later (exit {TRY_LATER}).", ended))
    if ended.exit < 0:
        text = f"{who} was killed by signal {-ended.exit}, which Paddock did not send."
        hint = "Often the machine's memory was used up."
        if tries == 0:
            return TransientFailure(_error("killed", text, ended, hint))
        return _permanent("killed", text, ended, hint)
    text = f"{who} exited with code {ended.exit}."
    if unknown_may_repeat:
        return TransientFailure(_error("command_failed", text, ended), unclassified=True)
    return _permanent("command_failed", text, ended)


def _not_started(who: str, ended: CommandEnd, settings: Source | Hook) -> Outcome:
    if ended.problem in PRESSED:
        raise TransientResourceError(
            f"{who} could not be started: the machine has no room for another process.", budget="cluster"
        )
    if ended.problem == "EIO":
        raise TransientResourceError(f"{who} could not be watched: {ended.message}", budget="cluster")
    raise PermanentRunnerError(
        f"{who} could not be started: {settings.command[0]!r} cannot be run here ({ended.problem}).",
        code="command_missing",
        hint="Install it on the worker's machine, or correct `command` in paddock.toml.",
    )


def _permanent(code: str, message: str, ended: CommandEnd, hint: str | None = None) -> PermanentFailure:
    return PermanentFailure(_error(code, message, ended, hint))


def _error(code: str, message: str, ended: CommandEnd, hint: str | None = None) -> JobError:
    return JobError(code, message, hint, traceback="\n".join(ended.last_lines) or None)


def definition_sha256(settings: Source | Hook) -> str:
    """Of what was run: a published file says by which definition it was made."""
    shown = settings.model_dump(mode="json", exclude={"secrets"})
    return hashlib.sha256(orjson.dumps(shown, option=orjson.OPT_SORT_KEYS)).hexdigest()


def columns_sha256(columns: Mapping[str, str]) -> str:
    return hashlib.sha256(orjson.dumps([*columns.items()])).hexdigest()
