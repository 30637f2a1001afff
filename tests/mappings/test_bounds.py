"""Questions to engines go before everybody's exports: one owner has few of them at a time, however large the mapping."""

import asyncio
from typing import Any

import httpx2

from paddock.exports import asking, validating
from paddock.exports.asking import TooManyQuestions
from paddock.exports.mapping import Definition
from paddock.exports.model import AskPayload
from paddock.jobs.core import Core
from paddock.jobs.model import Job, JsonObject
from tests.mappings.test_mappings import describing
from tests.playing import PlayedWorker

FINE: dict[str, Any] = {"columns": [], "mismatches": []}


def large(nodes: int = 60) -> Definition:
    node = {"sql": "SELECT 1", "primary_key": {"name": "id", "type": "INT64"}}
    return Definition.model_validate({"nodes": [{**node, "label": f"N{number}"} for number in range(nodes)]})


async def validated(core: Core, within: float) -> JsonObject:
    return await validating.validate(
        core, large(), engine="local", catalog=None, schema_name=None, owner="ada", role=None, within=within
    )


async def ask(core: Core, owner: str = "ada") -> Job | TooManyQuestions:
    payload = AskPayload(engine="local", sql="SELECT 1")
    try:
        return await asking.ask(core, payload, owner=owner, role=None, wait=0)
    except TooManyQuestions as refused:
        return refused


async def live(core: Core) -> int:
    return int(await core.db.pool("relaxed").fetchval("SELECT count(*) FROM jobs WHERE kind = 'describe'"))


async def answer(played: PlayedWorker) -> None:
    while True:
        for attempt in await played.claim("describe", limit=10, wait=5):
            await attempt.finish("done", result=FINE)


async def test_a_validation_that_nobody_answers_asks_about_few(core: Core) -> None:
    await describing(core)

    found = await validated(core, within=0.5)

    assert await live(core) == validating.AT_ONCE
    errors = [entity["error"]["code"] for entity in found["entities"]]
    assert errors == ["engine_slow"] * validating.AT_ONCE + ["not_asked"] * (60 - validating.AT_ONCE)
    assert found["entities"][-1]["job_id"] is None


async def test_an_owner_has_few_questions_at_a_time_and_nobody_else_has_fewer(core: Core) -> None:
    played = await describing(core)

    found = await asyncio.gather(*(ask(core) for _ in range(60)))

    assert sum(isinstance(one, Job) for one in found) == asking.MOST_AT_ONCE == await live(core)
    assert isinstance(await ask(core, "bob"), Job)
    [running, *_] = await played.claim("describe", limit=5)
    assert isinstance(await ask(core), TooManyQuestions), "one that runs counts too"
    await running.finish("done", result=FINE)
    assert isinstance(await ask(core), Job)


async def test_who_asks_too_much_is_told_so(core: Core, ada: httpx2.AsyncClient) -> None:
    await describing(core)
    await asyncio.gather(*(ask(core) for _ in range(asking.MOST_AT_ONCE)))

    refused = await ada.post("/api/engines/local/describe", json={"sql": "SELECT 1"})

    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_questions")
    assert 0 < int(refused.headers["Retry-After"]) <= 30


async def test_a_validation_waits_for_room(core: Core) -> None:
    played = await describing(core)
    await asyncio.gather(*(ask(core) for _ in range(asking.MOST_AT_ONCE)))
    validating_all = asyncio.create_task(validated(core, within=30))
    answering = asyncio.create_task(answer(played))
    try:
        assert (await validating_all)["valid"]
    finally:
        answering.cancel()
        await asyncio.wait([answering])
