"""Run by the test in a process of its own, which sees the installed example: one turn of `greet`, killed and resumed."""

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from paddock.jobs.errors import StaleAttempt
from paddock.jobs.kinds import Kind, Kinds, add_entry_points
from paddock.jobs.model import AttemptId, JobId, JsonObject
from paddock.jobs.outcomes import Done
from paddock.jobs.turn import Turn


class Paper:
    """A turn's link that only writes down, and loses its job after `saves` saves."""

    def __init__(self, saves: int = 1_000) -> None:
        self.saved: JsonObject = {}
        self.greeted: list[str] = []
        self._left = saves

    async def save(self, state: JsonObject, *, progress: bool = True) -> None:
        if self._left == 0:
            raise StaleAttempt
        self._left -= 1
        self.saved = state

    def save_blocking(self, state: JsonObject, *, progress: bool = True) -> None:
        raise NotImplementedError

    def report(self, progress: JsonObject) -> None:
        pass

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        self.greeted.append(fields["name"])


async def run(kind: Kind, payload: JsonObject, saved: JsonObject, paper: Paper) -> object:
    turn = Turn(
        id=JobId(uuid4()),
        attempt_id=AttemptId(uuid4()),
        kind=kind.name,
        payload=kind.payload.model_validate(payload),
        saved=saved,
        owner="ann",
        link=paper,
    )
    return await kind.handler(turn)


async def main() -> None:
    kinds = Kinds()
    add_entry_points(kinds)
    greet = kinds["greet"]
    guests: JsonObject = {"names": ["Ada", "Grace", "Edsger"]}

    first = Paper(saves=1)
    try:
        await run(greet, guests, {}, first)
    except StaleAttempt:
        second = Paper()
        outcome = await run(greet, guests, first.saved, second)
        assert isinstance(outcome, Done)
        answer = {
            "kinds": [kind.name for kind in kinds],
            "submit": sorted(greet.submit or ()),
            "first": first.greeted,
            "second": second.greeted,
            "result": outcome.result,
        }
        json.dump(answer, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
