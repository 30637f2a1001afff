"""A question to a worker: any kind may be asked, and whoever asks waits for the answer or is told why there is none."""

import asyncio

import pytest

from paddock.jobs import asking, wire
from paddock.jobs.asking import Question, TooManyQuestions
from paddock.jobs.core import Core
from paddock.jobs.errors import Refused
from tests.playing import read, submit, worker

CATALOG = Question(kind="plain", whom="catalog", mistakes=frozenset({"no_such_table"}))
OTHER = Question(kind="other", whom="table")


async def test_it_goes_first_and_its_end_is_waited_for(core: Core) -> None:
    await submit(core, n=3)
    played = await worker(core)
    asked = asyncio.create_task(CATALOG.ask(core, {"n": 1}, owner="ann", role="finance"))
    attempt = None
    async with asyncio.timeout(60):
        while attempt is None:
            [first] = await played.claim("plain", limit=1)
            if first.job.role == "finance":
                attempt = first
            else:  # claimed before the question was there
                await first.release()
    assert not asked.done()
    await attempt.finish(result={"found": 7})
    job = await asyncio.wait_for(asked, 60)
    assert (job.owner, job.payload, job.priority) == ("ann", {"n": 1}, 1)
    assert CATALOG.answer(job) == {"found": 7}


async def test_one_that_is_not_answered_in_time(core: Core) -> None:
    await worker(core)
    job = await CATALOG.ask(core, {}, owner="ann", wait=0)
    with pytest.raises(Refused, match="The catalog has not answered yet") as refused:
        CATALOG.answer(job)
    assert (refused.value.code, refused.value.status) == ("catalog_slow", 504)
    assert refused.value.details["job"] == str(job.id)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (wire.Error(code="catalog_down", message="It is down.", hint="Start it."), 502),
        (wire.Error(code="bad_name", message="It is down.", hint="Start it.", mistake=True), 422),
        (wire.Error(code="no_such_table", message="It is down.", hint="Start it."), 422),
    ],
)
async def test_one_that_fails_says_why(core: Core, error: wire.Error, status: int) -> None:
    played = await worker(core)
    job = await CATALOG.ask(core, {}, owner="ann", wait=0)
    await (await played.claim_one("plain")).finish("permanent", error=error)
    with pytest.raises(Refused, match="It is down") as refused:
        CATALOG.answer(await read(core, job.id))
    assert (refused.value.code, refused.value.status, refused.value.hint) == (error.code, status, "Start it.")


async def test_nobody_waits_where_no_worker_offers_the_kind(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "WORKER_SECONDS", 0.0)
    with pytest.raises(Refused, match="No live worker could ask the catalog") as refused:
        await CATALOG.ask(core, {}, owner="ann")
    assert refused.value.code == "no_worker"
    assert await core.db.pool("relaxed").fetchval("SELECT count(*) FROM jobs") == 0


async def test_an_owner_has_few_of_one_kind(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "MOST_AT_ONCE", 3)
    played = await worker(core)
    for _ in range(3):
        await CATALOG.ask(core, {}, owner="ann", wait=0)
    running = await played.claim_one("plain")
    with pytest.raises(TooManyQuestions, match="questions to catalogs"):
        await CATALOG.ask(core, {}, owner="ann", wait=0)
    await CATALOG.ask(core, {}, owner="bob", wait=0)
    await OTHER.ask(core, {}, owner="ann", wait=0)
    await running.finish()
    await CATALOG.ask(core, {}, owner="ann", wait=0)
