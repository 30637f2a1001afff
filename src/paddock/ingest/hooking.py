"""RunHooks: the hooks of a batch, one after the other; what one leaves out does not reach the next.

The end of each hook is saved as progress, with the draft that holds what passed so far. Killed on any line, a later try goes
on with the hook that had not ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from paddock.ingest import outputs, records
from paddock.ingest.launching import StepFolder, step_folder
from paddock.ingest.model import BatchPayload, Hooked, prefix_of_step
from paddock.ingest.outputs import (
    FEATURE,
    HOOK_ERROR,
    REJECTION,
    Feature,
    HookError,
    Line,
    Rejection,
    opened,
    read_lines,
)
from paddock.ingest.records import HookInput, LeftOut, LocalCopy, StoredRecord, each, read_left_out, read_records
from paddock.ingest.resources import IngestResources
from paddock.ingest.stepping import definition_sha256, failure, run_command
from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.storage.drafts import Draft, Manifest, Sealed, new_draft_id, read_manifest
from paddock.storage.scratch import room

FILES = {"features.jsonl": FEATURE, "rejections.jsonl": REJECTION, "errors.jsonl": HOOK_ERROR}

Key = tuple[str, str]


# Runs the command of a hook, here or elsewhere: afterwards its outputs are in the folder. None: it did its work.
Run = Callable[[Turn[BatchPayload], IngestResources, str, StepFolder, "Copy"], Awaitable[Outcome | None]]


async def run(turn: Turn[BatchPayload], resources: IngestResources, run_hook: Run | None = None) -> Outcome:
    source = resources.source(turn.payload.source)
    state = Progress(turn)
    while len(state.hooks) < len(source.hooks):
        name = source.hooks[len(state.hooks)]
        if name not in resources.hooks:
            raise PermanentRunnerError(f"This worker has no hook '{name}'.", code="unknown_hook")
        draft_id = new_draft_id()
        # What else was saved is of a container that may still run.
        await turn.save({**turn.saved, **state.saved(), "draft": draft_id}, progress=False)
        with step_folder(resources.scratch, f"hook-{draft_id}") as folder:
            failed = await _run_hook(turn, resources, run_hook or _run_here, name, folder, state, draft_id)
        if failed is not None:
            return failed
        await turn.save(state.saved())
    manifest = await read_manifest(resources.store, state.manifest, state.sha256)
    passed = sum(part.rows for part in manifest.files if part.name == records.RECORDS)
    return done(
        Hooked(
            manifest=state.manifest,
            sha256=state.sha256,
            passed=passed,
            rejected=sum(hook["rejected"] for hook in state.hooks),
            errors=sum(hook["errors"] for hook in state.hooks),
            hooks=state.hooks,
        ).model_dump(mode="json")
    )


class Progress:
    """Which hooks have ended, and what they left."""

    def __init__(self, turn: Turn[BatchPayload]) -> None:
        self.manifest: str = turn.saved.get("manifest", turn.payload.manifest)
        self.sha256: str = turn.saved.get("sha256", turn.payload.sha256)
        self.hooks: list[JsonObject] = turn.saved.get("hooks", [])

    def saved(self) -> JsonObject:
        return {"manifest": self.manifest, "sha256": self.sha256, "hooks": self.hooks}


class Copy:
    """The records that the hook reads, on this machine from when they are wanted: a container brings its own, and while it waits
    for the cluster they would only take room."""

    def __init__(self, resources: IngestResources, manifest: Manifest, folder: StepFolder) -> None:
        self._resources, self._manifest, self._folder = resources, manifest, folder
        self._copy: LocalCopy | None = None

    async def get(self) -> LocalCopy:
        if self._copy is None:
            self._copy = await records.fetch(self._resources.store, self._manifest, self._folder)
        return self._copy


async def _run_hook(
    turn: Turn[BatchPayload],
    resources: IngestResources,
    run_hook: Run,
    name: str,
    folder: StepFolder,
    state: Progress,
    draft_id: str,
) -> Outcome | None:
    hook = resources.hooks[name]
    turn.report(phase=f"hook {name}", percent=100 * len(state.hooks) / len(resources.source(turn.payload.source).hooks))
    manifest = await read_manifest(resources.store, state.manifest, state.sha256)
    brought = Copy(resources, manifest, folder)
    failed = await run_hook(turn, resources, name, folder, brought)
    if failed is not None:
        return failed
    copy = await brought.get()
    answers = await asyncio.to_thread(_answers, folder, copy.records, name)
    prefix = prefix_of_step(turn.payload.source, turn.payload.run_id, turn.payload.batch, "hooks")
    facts = {"step": f"hook {name}", "definition": definition_sha256(hook), "before": manifest.facts}
    sealed = await _write(resources, Draft(resources.store, prefix, draft_id), copy, answers, name, facts)
    counts = {
        "rejected": sum(isinstance(line, Rejection) for line in answers.values()),
        "errors": sum(isinstance(line, HookError) for line in answers.values()),
    }
    state.manifest, state.sha256 = sealed.manifest, sealed.sha256
    state.hooks = [*state.hooks, {"hook": name, "passed": len(answers) - sum(counts.values()), **counts}]
    return None


async def _run_here(
    turn: Turn[BatchPayload], resources: IngestResources, name: str, folder: StepFolder, brought: "Copy"
) -> Outcome | None:
    hook, copy = resources.hooks[name], await brought.get()
    # About as much: it has no positions.
    folder.take(copy.records.stat().st_size)
    with room():
        await asyncio.to_thread(give, copy.records, folder.inputs / "records.jsonl")
    async with resources.places:
        ended = await run_command(turn, hook, folder, {"PADDOCK_HOOK": name})
    return failure(f"The hook '{name}'", ended, hook, tries=turn.failure_count, unknown_may_repeat=False)


def give(source: Path, target: Path) -> None:
    """What a hook reads of the records."""
    with target.open("xb") as file:
        for record in each(source, read_records):
            line = HookInput(record.id, record.stream, record.data, record.features)
            file.write(records.ENCODER.encode(line) + b"\n")


def _answers(folder: StepFolder, source: Path, hook: str) -> dict[Key, Line]:
    """What the hook says of each record: one line for each of them, in one of its three files."""
    keys = [record.key for record in each(source, read_records)]
    known = set(keys)
    # A hook may leave the stream out where the id alone says which record it means.
    by_id: dict[str, Key | None] = {}
    for key in keys:
        by_id[key[1]] = None if key[1] in by_id else key
    found: dict[Key, Line] = {}
    for name, line in _lines(folder):
        key = outputs.key_of(line)
        meant = key if key in known else by_id.get(key[1]) if not line.stream else None
        if meant is None:
            raise _unaccounted(f"The hook '{hook}' wrote a line to out/{name} for an id that its batch does not have.")
        if meant in found:
            raise _unaccounted(f"The hook '{hook}' wrote more than one line for a record; the second is in out/{name}.")
        found[meant] = line
    if len(found) < len(known):
        raise _unaccounted(
            f"The hook '{hook}' wrote no line for {len(known) - len(found):,} of {len(known):,} records."
        )
    return found


def _lines(folder: StepFolder) -> Iterator[tuple[str, Line]]:
    for name, decoder in FILES.items():
        file = opened(folder.out_fd, name)
        if file is None:
            continue
        with file:
            for line in read_lines(file, name, decoder):  # type: ignore[arg-type]  # a decoder of one of the lines
                yield name, line


def _unaccounted(message: str) -> PermanentRunnerError:
    return PermanentRunnerError(
        message,
        code="unaccounted_records",
        hint="Write each id of the batch to exactly one of features.jsonl, rejections.jsonl and errors.jsonl.",
    )


async def _write(
    resources: IngestResources, draft: Draft, copy: LocalCopy, answers: dict[Key, Line], hook: str, facts: JsonObject
) -> Sealed:
    for name, lines in (
        (records.RECORDS, _passed(copy, answers, hook)),
        (records.REJECTED, _left_out(copy, answers, hook)),
    ):
        file = await asyncio.to_thread(records.write_lines, resources.scratch, lines)
        try:
            if file.rows or name == records.RECORDS:
                await draft.add(file, name)
        finally:
            file.remove()
    return await draft.seal(facts)


def _passed(copy: LocalCopy, answers: dict[Key, Line], hook: str) -> Iterator[StoredRecord]:
    for record in each(copy.records, read_records):
        line = answers[record.key]
        if isinstance(line, Feature):
            features = {**record.features, hook: line.features}
            yield StoredRecord(record.position, record.stream, record.id, record.data, features)


def _left_out(copy: LocalCopy, answers: dict[Key, Line], hook: str) -> Iterator[LeftOut]:
    if copy.rejected is not None:
        yield from each(copy.rejected, read_left_out)
    for record in each(copy.records, read_records):
        line = answers[record.key]
        if isinstance(line, Rejection):
            yield LeftOut(record.position, record.stream, record.id, record.data, hook, "rejected", line.reason)
        elif isinstance(line, HookError):
            yield LeftOut(record.position, record.stream, record.id, record.data, hook, "error", line.error)
