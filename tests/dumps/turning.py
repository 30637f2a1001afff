"""Turns of a dump, played without a control plane: what was saved stays, everything else dies with the process."""

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from paddock.config import Config, load
from paddock.dumps import running
from paddock.dumps.model import DumpOptions, DumpPayload, Finished
from paddock.dumps.resources import DumpResources
from paddock.dumps.source import Frozen, Progress
from paddock.jobs.errors import StaleAttempt
from paddock.jobs.model import MAX_REPORT_BYTES, MAX_RESULT_BYTES, AttemptId, JobId, JsonObject
from paddock.jobs.outcomes import Again, Done, Outcome
from paddock.jobs.turn import Turn
from paddock.worker.ending import encoded_state
from tests.dumps.frozen import AT, InMemory


class Killed(BaseException):
    """Not an Exception: nothing in a handler may catch it, as nothing catches SIGKILL."""


class Death:
    """Counts what is done to the world; the process dies after step `at`, and the dead do nothing more."""

    def __init__(self) -> None:
        self.steps = 0
        self.at: int | None = None

    def live(self, at: int | None = None) -> None:
        self.steps, self.at = 0, at

    def check(self) -> None:
        if self.at is not None and self.steps >= self.at:
            raise Killed

    def step(self) -> None:
        self.steps += 1
        self.check()


class Job:
    """A job between its turns, and a `TurnLink` for each of them."""

    def __init__(self, payload: DumpPayload) -> None:
        self.id = uuid4()
        self.payload = payload
        self.saved: JsonObject | None = None
        self.death = Death()
        # Of each save: whether it was progress.
        self.progress: list[bool] = []
        self.reports: list[JsonObject] = []
        self.logged: list[str] = []
        self.attempt = 0

    def turn(self, *, cleanup: bool = False) -> Turn[DumpPayload]:
        self.attempt += 1
        return Turn(
            id=JobId(uuid4() if cleanup else self.id),
            attempt_id=AttemptId(UUID(int=self.attempt)),
            kind=f"dump:{self.payload.database}",
            payload=self.payload,
            saved=None if self.saved is None else json.loads(json.dumps(self.saved)),
            owner="ada",
            link=_Line(self, self.attempt),
            cleanup_of=JobId(self.id) if cleanup else None,
        )


class _Line:
    def __init__(self, job: Job, attempt: int) -> None:
        self._job, self._attempt = job, attempt

    async def save(self, state: JsonObject, *, progress: bool = True) -> None:
        self.save_blocking(state, progress=progress)

    def save_blocking(self, state: JsonObject, *, progress: bool = True) -> None:
        if self._attempt != self._job.attempt:
            raise StaleAttempt
        self._job.death.check()
        self._job.progress.append(progress)
        self._job.saved = json.loads(bytes(encoded_state(state)))
        self._job.death.step()

    def report(self, progress: JsonObject) -> None:
        assert len(json.dumps(progress)) <= MAX_REPORT_BYTES, "nobody would see it"
        self._job.reports.append(progress)

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        self._job.logged.append(message)


class CopiedDatabase:
    """A `FileSource` whose content is a JSON file: what it copies is what a real one would."""

    def __init__(self, path: Path, chunk_rows: int = 50) -> None:
        self._path, self._chunk_rows = path, chunk_rows

    async def copy(self, target: Path, progress: Progress) -> datetime:
        content = self._path.read_bytes()
        await progress(0, len(content))
        target.write_bytes(content)
        await progress(len(content), len(content))
        return AT

    async def open(self, copy: Path, point_in_time: datetime, options: DumpOptions) -> Frozen:
        return InMemory(json.loads(copy.read_bytes()), chunk_rows=self._chunk_rows)


def configured(folder: Path, **more: Any) -> Config:
    database = {"type": "sqlite", "path": str(folder / "shop.db"), **more.pop("database", {})}
    return load(
        {},
        folder,
        {
            "data": folder / "data",
            "object_store": str(folder / "store"),
            "dumps_databases": json.dumps({"shop": database}),
            "dumps_part_bytes": 64 << 10,
            **more,
        },
    )


async def to_its_end(job: Job, resources: DumpResources, turns: int = 500) -> Finished:
    for _ in range(turns):
        outcome = await one_turn(job, resources)
        if isinstance(outcome, Done):
            assert len(json.dumps(outcome.result)) <= MAX_RESULT_BYTES
            return Finished.model_validate(outcome.result)
        assert isinstance(outcome, Again), outcome
    raise AssertionError("It never ends.")


async def one_turn(job: Job, resources: DumpResources) -> Outcome:
    return await running.run(job.turn(), resources)
