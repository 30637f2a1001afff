"""One whole dump job in this process: copy or snapshot, rendering, parts, into a folder. Only its line is played."""

from __future__ import annotations

import json
import resource
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from paddock.config import load
from paddock.dumps import running
from paddock.dumps.model import DumpPayload
from paddock.dumps.resources import DumpResources
from paddock.jobs.model import AttemptId, JobId, JsonObject
from paddock.jobs.outcomes import Again, Done
from paddock.jobs.turn import Turn


class _Line:
    """What was saved stays in memory."""

    def __init__(self) -> None:
        self.saved: JsonObject | None = None

    async def save(self, state: JsonObject, *, progress: bool = True) -> None:
        self.saved = state

    def save_blocking(self, state: JsonObject, *, progress: bool = True) -> None:
        self.saved = state

    def report(self, progress: JsonObject) -> None:
        pass

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        pass


def cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


async def dumped(type: str, source: Path | str, format: str, folder: Path, **settings: Any) -> float:
    """The CPU of all of it, our children's too. The file is removed again."""
    where = {"url": source} if type == "postgres" else {"path": str(source)}
    config = load(
        {},
        folder.parent,
        {
            "object_store": str(folder),
            "dumps_databases": json.dumps({"bench": {"type": type, **where}}),
            **settings,
        },
    )
    workshop, line, id = DumpResources(config), _Line(), uuid4()
    payload = DumpPayload.model_validate({"dump_id": "export_bench", "database": "bench", "format": format})
    before = cpu()
    while True:
        turn = Turn(
            id=JobId(id),
            attempt_id=AttemptId(uuid4()),
            kind="dump:bench",
            payload=payload,
            saved=line.saved,
            owner="bench",
            link=line,
        )
        outcome = await running.run(turn, workshop)
        if isinstance(outcome, Done):
            break
        if not isinstance(outcome, Again):
            raise RuntimeError(f"The dump did not end well: {outcome}")
    spent = cpu() - before
    shutil.rmtree(folder)
    return spent
