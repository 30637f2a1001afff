"""The turns of a job, played one by one: at the age a test wants, with what the one before saved, and killed where a test wants."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID, uuid4

from pydantic import BaseModel

from paddock.config import Config
from paddock.instances import growing, starting, stopping
from paddock.instances.model import SQL
from paddock.jobs.core import Core
from paddock.jobs.model import AttemptId, JobId, JsonObject
from paddock.jobs.outcomes import Again, Outcome
from paddock.jobs.turn import Turn

Handler = Callable[[Any, Core, Config], Awaitable[Outcome]]


class KeptLink:
    """Keeps what is saved, as the control plane would."""

    def __init__(self) -> None:
        self.saved: JsonObject = {}

    async def save(self, state: JsonObject, *, progress: bool) -> None:
        self.saved = state

    def save_blocking(self, state: JsonObject, *, progress: bool) -> None:
        self.saved = state

    def report(self, progress: JsonObject) -> None:
        return

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        return


class Turns:
    def __init__(self, core: Core, config: Config, handler: Handler, payload: BaseModel) -> None:
        self._core, self._config, self._handler, self._payload = core, config, handler, payload
        self._link = KeptLink()
        self._count = 0

    @property
    def saved(self) -> JsonObject:
        return self._link.saved

    async def next(self, age: float = 0.0) -> Outcome:
        """What the next turn says, `age` seconds after the job was first claimed. What it raises is raised."""
        self._count += 1
        turn: Turn[Any] = Turn(
            id=JobId(uuid4()),
            attempt_id=AttemptId(uuid4()),
            kind="played",
            payload=self._payload,
            saved=self._link.saved,
            owner="ada",
            link=self._link,
            turn_count=self._count,
            age_seconds=age,
        )
        outcome = await self._handler(turn, self._core, self._config)
        if isinstance(outcome, Again) and outcome.saved is not None:
            self._link.saved = outcome.saved
        return outcome


async def start_turns(core: Core, config: Config, id: str) -> Turns:
    row = await core.db.fetchrow(SQL["instance_row"], UUID(id))
    assert row is not None
    assert row["status"] == "starting"
    payload = starting.StartPayload(instance_id=id, generation=str(row["generation"]))
    return Turns(core, config, starting.run_start, payload)


def stop_turns(core: Core, config: Config, id: str) -> Turns:
    return Turns(core, config, stopping.run_stop, stopping.StopPayload(instance_id=id))


async def grow_turns(core: Core, config: Config, id: str, memory_gb: int) -> Turns:
    row = await core.db.fetchrow(SQL["instance_row"], UUID(id))
    assert row is not None
    job = growing.grow_job(row, memory_gb=memory_gb, percent=93, urgent=False)
    return Turns(core, config, growing.run_grow, growing.GrowPayload.model_validate(job.payload))
