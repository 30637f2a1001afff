"""RunIngester: the ingester's command, and its records cut into batches.

Killed on any line, this leaves drafts that no batch names. A later try starts from the session of the run, as this did.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime

import orjson

from paddock.ingest import outputs, records
from paddock.ingest.launching import StepFolder, step_folder
from paddock.ingest.model import MAX_SESSION, Fetched, FetchedBatch, FetchPayload, prefix_of_step
from paddock.ingest.outputs import RECORD, InvalidOutput, Record, key_of, opened, read_lines
from paddock.ingest.records import StoredRecord
from paddock.ingest.resources import IngestResources
from paddock.ingest.source_settings import Source
from paddock.ingest.stepping import definition_sha256, failure, run_command
from paddock.jobs.model import MAX_RESULT_BYTES
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.storage.drafts import Draft, new_draft_id
from paddock.storage.scratch import ScratchFile

FILE = "records.jsonl"
# What the result of a job has room for, beside the batches and the session.
LISTED_BYTES = MAX_RESULT_BYTES - 1_024


# Runs the ingester, here or elsewhere: afterwards its outputs are in the folder. None: it did its work.
Run = Callable[[Turn[FetchPayload], IngestResources, StepFolder], Awaitable[Outcome | None]]


async def run(turn: Turn[FetchPayload], resources: IngestResources, run_ingester: Run | None = None) -> Outcome:
    source = resources.source(turn.payload.source)
    draft_id = new_draft_id()
    # What else was saved is of a container that may still run.
    await turn.save({**turn.saved, "draft": draft_id}, progress=False)
    with step_folder(resources.scratch, f"fetch-{draft_id}") as folder:
        turn.report(phase="fetching")
        if source.protocol != "files":
            from paddock.ingest import tapping

            return await tapping.run(turn, resources, folder, draft_id, run_ingester)
        failed = await (run_ingester or _run_here)(turn, resources, folder)
        if failed is not None:
            return failed
        return done((await _store_output(turn, resources, source, folder, draft_id)).model_dump(mode="json"))


async def _run_here(turn: Turn[FetchPayload], resources: IngestResources, folder: StepFolder) -> Outcome | None:
    source = resources.source(turn.payload.source)
    async with resources.places:
        ended = await run_command(turn, source, folder, _variables(turn, folder))
    who = f"The ingester of '{turn.payload.source}'"
    return failure(who, ended, source, tries=turn.failure_count, unknown_may_repeat=True)


def wanted(payload: FetchPayload) -> int:
    """How many records the ingester is asked for."""
    return payload.batch_size if payload.limit is None else min(payload.batch_size, payload.limit)


def _variables(turn: Turn[FetchPayload], folder: StepFolder) -> dict[str, str]:
    payload = turn.payload
    session = folder.inputs / "session.json"
    if "session" in turn.secrets:
        session.write_text(turn.secrets["session"])
    return {"PADDOCK_SESSION": str(session), "PADDOCK_LIMIT": str(wanted(payload))}


async def _store_output(
    turn: Turn[FetchPayload], resources: IngestResources, source: Source, folder: StepFolder, draft_id: str
) -> Fetched:
    """What the ingester wrote, in the store."""
    payload = turn.payload
    session, has_more = await asyncio.to_thread(outputs.read_session, folder.out_fd, MAX_SESSION)
    batches: list[FetchedBatch] = []
    facts = {"step": "fetch", "definition": definition_sha256(source)}
    with contextlib.closing(Cutting(folder, payload.batch_size, payload.limit)) as cutting:
        while lines := await asyncio.to_thread(cutting.next_batch):
            file = await asyncio.to_thread(records.write_lines, resources.scratch, stored(lines))
            prefix = prefix_of_step(payload.source, payload.run_id, payload.batch + len(batches), "fetch")
            batches.append(
                await sealed_batch(Draft(resources.store, prefix, draft_id), file, facts, cutting.duplicates)
            )
            check_listed(batches, session)
            turn.report(phase="fetching", rows=sum(batch.records for batch in batches))
    return Fetched(
        batches=batches,
        secret_session=session,
        has_more=has_more,
        fetched_at=datetime.now(UTC),
        cut=cutting.cut,
    )


def check_listed(batches: Sequence[FetchedBatch], session: str | None, *, more: int = 0) -> None:
    """All batches of a fetch and its session stand in one result, which must not become too large to be sent. `more` are the
    batches that are not written yet."""
    # The batches are alike: the newest, with a few digits more, stands for all.
    each = len(orjson.dumps(batches[-1].model_dump(mode="json"))) + 10 if batches else 500
    if (len(batches) + more) * each + len(orjson.dumps(session)) > LISTED_BYTES:
        beside = "" if session is None else f" and a session of {len(session.encode()):,} bytes"
        raise InvalidOutput(
            f"One fetch gave {len(batches) + more:,} batches{beside}, which is more than can be listed at once.",
            hint="Give fewer records at once, as PADDOCK_LIMIT says, or choose a larger batch_size.",
        )


async def sealed_batch(draft: Draft, file: ScratchFile, facts: dict[str, str], duplicates: int) -> FetchedBatch:
    try:
        await draft.add(file, records.RECORDS)
        sealed = await draft.seal(facts)
    finally:
        file.remove()
    return FetchedBatch(
        manifest=sealed.manifest, sha256=sealed.sha256, records=sealed.rows, duplicates=duplicates, bytes=sealed.bytes
    )


def stored(lines: list[Record]) -> Iterator[StoredRecord]:
    for position, line in enumerate(lines):
        yield StoredRecord(position, line.stream, str(line.id), line.data)


class Cutting:
    """The lines of `records.jsonl` in batches. Of one record twice in a batch the last stays, at the place of the last."""

    def __init__(self, folder: StepFolder, size: int, limit: int | None) -> None:
        file = opened(folder.out_fd, FILE)
        if file is None:
            raise InvalidOutput(
                f"The ingester wrote no out/{FILE}.", hint="Write an empty file where there is nothing."
            )
        self._file = file
        self._lines = read_lines(file, FILE, RECORD)  # type: ignore[arg-type]  # a decoder of one of the lines
        self._size = size
        self._left = limit
        # Of the batch that was given last.
        self.duplicates = 0
        self.cut = False

    def close(self) -> None:
        self._file.close()

    def next_batch(self) -> list[Record]:
        """Nothing at the end."""
        found: dict[tuple[str, str], Record] = {}
        read = 0
        for line in self._lines:
            if self._left == 0:
                self.cut = True
                break
            assert isinstance(line, Record)
            found.pop(key_of(line), None)
            found[key_of(line)] = line
            read += 1
            if self._left is not None:
                self._left -= 1
            if read == self._size:
                break
        self.duplicates = read - len(found)
        return [*found.values()]
