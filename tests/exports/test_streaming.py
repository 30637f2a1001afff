"""What an export does while its query runs: it tells how far it is, and holds the memory it needs."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from paddock.config import load
from paddock.engines.engine import Column, Progress
from paddock.exports import running
from paddock.exports.model import ExportPayload
from paddock.exports.resources import ExportResources
from paddock.exports.writing.output import Output
from paddock.jobs.model import AttemptId, JobId, JsonObject
from paddock.jobs.turn import Turn
from paddock.storage.drafts import Draft, new_draft_id

SCHEMA = pa.schema([("a", pa.int64())])


class Line:
    """Hears what the turn reports."""

    def __init__(self) -> None:
        self.reports: asyncio.Queue[JsonObject] = asyncio.Queue()

    async def save(self, state: JsonObject, *, progress: bool = True) -> None:
        raise NotImplementedError

    def save_blocking(self, state: JsonObject, *, progress: bool = True) -> None:
        raise NotImplementedError

    def report(self, progress: JsonObject) -> None:
        self.reports.put_nowait(progress)

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        raise NotImplementedError


class Long:
    """A query that works until its progress was told, and then gives one row."""

    def __init__(self, line: Line, resources: ExportResources, ahead_bytes: int = 0) -> None:
        self.columns: Sequence[Column] = [Column("a", pa.int64(), "BIGINT")]
        self.progress = Progress(phase="running", percent=42.0)
        self._ahead = ahead_bytes
        self.told: JsonObject = {}
        self.reserved = 0
        self._line, self._workshop = line, resources

    async def begin(self) -> int:
        assert self._workshop.memory.used == 0
        return self._ahead

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        self.reserved = self._workshop.memory.used
        async with asyncio.timeout(60):
            self.told = await self._line.reports.get()
        yield pa.record_batch([pa.array([1], pa.int64())], schema=SCHEMA)


@pytest.fixture
def resources(tmp_path: Path) -> ExportResources:
    return ExportResources(load({"PADDOCK_DATA": str(tmp_path / "data")}, tmp_path))


async def exported(resources: ExportResources, line: Line, stream: Long) -> JsonObject:
    draft = Draft(resources.store, "owner/exports/one", new_draft_id())
    turn = Turn(
        id=JobId(uuid4()),
        attempt_id=AttemptId(uuid4()),
        kind="export",
        payload=ExportPayload(engine="local", sql="SELECT 1", output="owner/exports/one"),
        saved={"draft": draft.id},
        owner="ada",
        link=line,
    )
    return await running._write(turn, resources, stream, draft, datetime.now(UTC))


async def test_progress_is_told_before_the_first_row(
    resources: ExportResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "REPORT_EVERY", 0.01)
    line = Line()
    stream = Long(line, resources)

    result = await exported(resources, line, stream)

    assert (stream.told["percent"], stream.told["phase"], stream.told["rows"]) == (42.0, "running", 0)
    assert result["rows"] == 1
    last = [line.reports.get_nowait() for _ in range(line.reports.qsize())][-1]
    assert (last["phase"], last["rows"]) == ("writing the last file", 1)


async def test_what_the_engine_fetches_ahead_is_reserved_too(resources: ExportResources) -> None:
    line = Line()
    stream = Long(line, resources, ahead_bytes=5 << 20)

    await exported(resources, line, stream)

    options = ExportPayload(engine="x", output="x").options
    assert stream.reserved == Output.reservation(SCHEMA, "parquet", options) + (5 << 20)
    assert resources.memory.used == 0
