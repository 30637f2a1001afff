"""RunIngester for taps: a fetch runs the tap to its end and cuts batches as it reads.

A tap that gives more than a fetch may hold is stopped at the next STATE that is not the session it began with; the next fetch
goes on from there. One that fails after such a STATE made progress: what came before counts. Memory holds one batch.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from paddock.ingest import launching, outputs, records
from paddock.ingest.fetching import Run, check_listed, sealed_batch, stored
from paddock.ingest.hiding import Hide, hiding, hiding_by_sums
from paddock.ingest.launching import CommandEnd, StepFolder
from paddock.ingest.messages import Reader, Said, State, keys_of, states_of
from paddock.ingest.model import Fetched, FetchedBatch, FetchPayload, prefix_of_step
from paddock.ingest.outputs import InvalidOutput, Record, key_of
from paddock.ingest.resources import IngestResources, secret_values
from paddock.ingest.settings import IngestSettings
from paddock.ingest.source_settings import Source
from paddock.ingest.stepping import BAD_INPUT, TRY_LATER, definition_sha256, failure, variables
from paddock.ingest.transfer_files import EXIT_CODE, EXIT_CODE_BYTES, HIDDEN, MESSAGES, MESSAGES_BYTES
from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.model import JobError
from paddock.jobs.outcomes import Outcome, PermanentFailure, TransientFailure, done
from paddock.jobs.turn import Turn
from paddock.storage.drafts import Draft

# After so many a tap is stopped at its next place; the result of a job has room for a few times as many.
MOST_BATCHES, TOO_MANY = 200, 1_000
BATCH_BYTES = 32 << 20
LONGEST_SECRET = 64 << 10


async def run(
    turn: Turn[FetchPayload],
    resources: IngestResources,
    folder: StepFolder,
    draft_id: str,
    run_tap: Run | None = None,
) -> Outcome:
    """With `run_tap` it runs elsewhere, and what it said is a file in the folder afterwards."""
    source = resources.source(turn.payload.source)
    tap = Tap(turn, resources, source, draft_id)
    if run_tap is not None:
        failed = await run_tap(turn, resources, folder)
        if failed is not None:
            return failed
        if source.secrets:
            told = folder.inputs / HIDDEN
            tap.hide = hiding_by_sums(told.read_bytes() if told.exists() else None, turn.secrets["transfer_token"])
        return await _read_file(tap, folder)
    hidden = [*secret_values(source.secrets).values()]
    tap.hide = hiding(hidden)
    async with resources.places:
        ended, problem = await _run_here(turn, source, folder, tap, hidden)
    return await tap.outcome(ended, problem)


async def _run_here(
    turn: Turn[FetchPayload], source: Source, folder: StepFolder, tap: "Tap", hidden: Sequence[str]
) -> tuple[CommandEnd, InvalidOutput | None]:
    problem: InvalidOutput | None = None
    with launching.Messages() as messages:
        command = asyncio.create_task(
            launching.run(
                _command(turn, source, folder),
                environment=variables(turn, source, folder),
                folder=source.folder or folder.path,
                timeout=source.timeout,
                memory=source.memory,
                log=turn.log.info,
                messages=messages,
                hidden=hidden,
            )
        )
        try:
            await tap.listen(messages)
        except InvalidOutput as invalid:
            problem = invalid
            messages.stop()
            await messages.pass_over()
        except BaseException:
            command.cancel()
            await asyncio.wait([command])
            raise
        return await command, problem


async def _read_file(tap: "Tap", folder: StepFolder) -> Outcome:
    file = outputs.opened(folder.out_fd, MESSAGES, MESSAGES_BYTES)
    problem: InvalidOutput | None = None
    if file is not None:
        with file:
            try:
                await tap.listen(FileOfMessages(file))
            except InvalidOutput as invalid:
                problem = invalid
    return await tap.outcome(CommandEnd(_exit_code(folder), None, None, None, []), problem)


def _exit_code(folder: StepFolder) -> int:
    file = outputs.opened(folder.out_fd, EXIT_CODE, EXIT_CODE_BYTES)
    if file is None:
        return 0
    with file:
        said = file.read().strip()
    return int(said) if said.isdigit() else 1


class FileOfMessages:
    """What a tap said elsewhere, as if it were saying it now."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        pending = b""
        while data := await asyncio.to_thread(self._file.read, 1 << 20):
            *lines, pending = (pending + data).split(b"\n")
            if len(pending) > launching.LONGEST_MESSAGE:
                lines, pending = [*lines, pending], b""
            yield [line for line in lines if line]
        if pending:
            yield [pending + launching.TORN]

    def stop(self) -> None:
        """It has ended already; what it said besides does not count."""

    async def pass_over(self) -> None:
        pass


def _command(turn: Turn[FetchPayload], source: Source, folder: StepFolder) -> Sequence[str]:
    config = folder.inputs / "tap-config.json"
    config.write_bytes(orjson.dumps(_with_secrets(source.config, secret_values(source.secrets))))
    found = [*source.command, *(["read"] if source.protocol == "airbyte" else []), "--config", str(config)]
    if source.catalog is not None:
        found += ["--catalog", str(source.catalog)]
    if "session" in turn.secrets:
        state = folder.inputs / "state.json"
        state.write_text(turn.secrets["session"])
        found += ["--state", str(state)]
    return found


def _with_secrets(value: Any, secrets: Mapping[str, str]) -> Any:
    """`${NAME}` in a value stands for that secret."""
    if isinstance(value, dict):
        return {name: _with_secrets(one, secrets) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_secrets(one, secrets) for one in value]
    if isinstance(value, str):
        for name, secret in secrets.items():
            value = value.replace(f"${{{name}}}", secret)
    return value


def _read_catalog(path: Path | None) -> Any:
    try:
        return {} if path is None else orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        raise PermanentRunnerError(
            f"The catalog {path} cannot be read.", code="catalog_missing", hint="Write it on the worker's machine."
        ) from None


@dataclass
class Place:
    """A STATE that moved: what counts when the tap goes no further."""

    session: str
    batches: int
    pending: int


@dataclass
class Tap:
    turn: Turn[FetchPayload]
    resources: IngestResources
    source: Source
    draft_id: str
    batches: list[FetchedBatch] = field(default_factory=list)
    pending: list[Record] = field(default_factory=list)
    pending_bytes: int = 0
    place: Place | None = None
    stopped: bool = False
    cut: bool = False
    # What the tap says of itself may hold a secret that it was given.
    hide: Hide = str

    def __post_init__(self) -> None:
        assert self.source.protocol != "files"
        self.began = self.turn.secrets.get("session")
        self.reader = Reader(self.source.protocol)
        if self.source.protocol == "airbyte":
            self.reader.keys.update(keys_of(_read_catalog(self.source.catalog)))
            self.reader.states.update(states_of(self.began))
        self.left = self.turn.payload.limit
        self.batch_size = self.turn.payload.batch_size
        self.most_bytes = self.resources.config.of(IngestSettings).waiting_bytes

    async def listen(self, messages: "launching.Messages | FileOfMessages") -> None:
        """Until the tap says no more, or enough was said: then it is stopped, and what else it says does not count."""
        async for lines in messages:
            for line in lines:
                if self._read_line(line):
                    self.stopped = True
                    messages.stop()
                    await messages.pass_over()
                    return
                if len(self.pending) >= self.batch_size or self.pending_bytes >= BATCH_BYTES:
                    # This one, and what is pending at the end.
                    check_listed(self.batches, self.place.session if self.place is not None else self.began, more=2)
                    await self._write()

    def _read_line(self, line: bytes) -> bool:
        """Whether the tap is to be stopped here."""
        found = self.reader.read(line)
        if isinstance(found, Record):
            if self.left == 0:
                self.cut = True
                return True
            self.pending.append(found)
            self.pending_bytes += len(line)
            if self.left is not None:
                self.left -= 1
        elif isinstance(found, State):
            if found.session != self.began:
                check_listed(self.batches, found.session, more=2)
                self.place = Place(found.session, len(self.batches), len(self.pending))
                return self._full()
        elif isinstance(found, Said):
            if found.text:
                self.turn.log.info(self._without_secrets(found.text, launching.LONGEST_LINE))
            if found.total is not None:
                self.turn.report(phase="fetching", rows=self._rows(), total=found.total)
        return False

    def _without_secrets(self, text: str, most: int) -> str:
        """Looking for secrets costs for each byte. No secret is so long that the end of what is looked at could show a part of it."""
        return self.hide(text[: most + LONGEST_SECRET])[:most]

    def _full(self) -> bool:
        return len(self.batches) >= MOST_BATCHES or sum(batch.bytes for batch in self.batches) >= self.most_bytes

    async def _write(self) -> None:
        """One record twice in a batch is its last."""
        if len(self.batches) >= TOO_MANY:
            raise InvalidOutput(
                f"The tap gave {TOO_MANY:,} batches and no STATE that moves.",
                hint="Choose streams with a replication key, or a larger batch_size.",
            )
        if self.place is not None and self.place.batches == len(self.batches) and self.place.pending:
            # The place falls into this batch: it counts as a whole, and what follows the place is fetched again.
            self.place = Place(self.place.session, len(self.batches) + 1, 0)
        kept: dict[tuple[str, str], Record] = {}
        for record in self.pending:
            kept.pop(key_of(record), None)
            kept[key_of(record)] = record
        payload = self.turn.payload
        file = await asyncio.to_thread(records.write_lines, self.resources.scratch, stored([*kept.values()]))
        prefix = prefix_of_step(payload.source, payload.run_id, payload.batch + len(self.batches), "fetch")
        facts = {"step": "fetch", "definition": definition_sha256(self.source)}
        duplicates = len(self.pending) - len(kept)
        draft = Draft(self.resources.store, prefix, self.draft_id)
        self.batches.append(await sealed_batch(draft, file, facts, duplicates))
        self.pending, self.pending_bytes = [], 0
        self.turn.report(phase="fetching", rows=self._rows())

    def _rows(self) -> int:
        return sum(batch.records for batch in self.batches)

    async def outcome(self, ended: CommandEnd, problem: InvalidOutput | None) -> Outcome:
        failed = None if self.stopped else self._failure(ended, problem)
        if self.cut or (failed is None and not self.stopped):
            return await self._done(None if self.place is None else self.place.session, has_more=self.cut)
        if self.place is None:
            assert failed is not None
            return failed
        if failed is not None:
            self.turn.log.warning("The tap failed after it had made progress; the next fetch goes on from there.")
        # What came before the place counts, and nothing else.
        if self.place.batches < len(self.batches):
            del self.batches[self.place.batches :]
            self.pending = []
        else:
            self.pending = self.pending[: self.place.pending]
        return await self._done(self.place.session, has_more=True)

    async def _done(self, session: str | None, *, has_more: bool) -> Outcome:
        if self.pending:
            await self._write()
        found = Fetched(
            batches=self.batches,
            secret_session=session if session is not None else self.began,
            has_more=has_more,
            fetched_at=datetime.now(UTC),
            cut=self.cut,
        )
        return done(found.model_dump(mode="json"))

    def _failure(self, ended: CommandEnd, problem: InvalidOutput | None) -> Outcome | None:
        who = f"The tap of '{self.turn.payload.source}'"
        said = self.reader.error
        message = "" if said is None else f"{who} says: {self._without_secrets(said.message, 500)}"
        if said is not None and said.failure_type in ("config_error", "transient_error"):
            error = JobError(said.failure_type, message, None)
            return PermanentFailure(error) if said.failure_type == "config_error" else TransientFailure(error)
        failed = failure(who, ended, self.source, tries=self.turn.failure_count, unknown_may_repeat=True)
        if problem is not None and (failed is None or ended.stopped == "told"):
            return PermanentFailure(JobError(problem.code, self.hide(problem.message), problem.hint))
        if said is not None and (failed is None or ended.exit not in (0, BAD_INPUT, TRY_LATER, None)):
            last = "\n".join(ended.last_lines) or None
            error = JobError("tap_failed", message, None, traceback=last)
            return TransientFailure(error, unclassified=True)
        return failed
