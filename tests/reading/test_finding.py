"""Whatever a list is narrowed by, alone or by any two of them at once, it walks an index of exactly those jobs: the oldest
of all is found in the first step, though thousands that are newer have one of the two."""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest
import pytest_asyncio

from paddock.db.pool import Database, open_database
from paddock.jobs import reading, scanning
from paddock.jobs.filtering import Filter
from paddock.jobs.partitions import HISTORY, TAGS, make_ahead
from paddock.jobs.reading import Count
from tests.conftest import Server
from tests.reading.rows import add_ended, add_kind, add_live, end_some, run
from tests.reading.test_plans import STEP_ROWS, Watched, touches_few_rows

pytestmark = pytest.mark.slow  # it makes some thousand rows first

OLDEST: Mapping[str, Any] = {
    "kind": "export",
    "owner": "ann",
    "status": "failed",
    "error_code": "broken",
    "tag": "nightly",
}
OTHERS: Mapping[str, Any] = {
    "kind": "probe",
    "owner": "bob",
    "status": "cancelled",
    "error_code": "worn",
    "tag": "daily",
}
NEWER = 1_500
ALL_OF = {
    "tag": "SELECT id FROM job_history WHERE 'all' = ANY (tags) ORDER BY id",
    "status": "SELECT id FROM job_history WHERE status = 'failed' ORDER BY id",
}
PAIRS = [dict(pair) for pair in combinations(OLDEST.items(), 2)]
ONES = [dict([one]) for one in OLDEST.items()]


async def add(db: Database, n: int, job: Mapping[str, Any], ago: str) -> None:
    named = {"kind": job["kind"], "owner": job["owner"], "status": job["status"], "tags": ["all", job["tag"]]}
    await add_ended(db, n, **named, error=(job["error_code"], "It broke."), ago=ago)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filled(postgres: Server) -> AsyncIterator[str]:
    """The oldest job, and thousands in other partitions that have one thing in common with it, or nothing."""
    dsn = await postgres.create_database("finding", "paddock_template")
    async with open_database(dsn) as db:
        await add_kind(db, "upkeep", housekeeping=True)
        await add(db, 1, OLDEST, "20 days")
        for ago in ("10 days", "1 hour"):
            now = (await run(db, "SELECT paddock_now() - $1::text::interval AS at", ago))[0]["at"]
            await make_ahead(db, HISTORY, now)
            await make_ahead(db, TAGS, now)
            for name, value in OLDEST.items():
                await add(db, NEWER, {**OTHERS, name: value}, ago)
            await add(db, NEWER, {**OTHERS, "kind": "upkeep", "status": "failed"}, ago)
        # Between the two parameters of `watched` nobody else makes statistics.
        tables = await run(
            db,
            "SELECT c.oid::regclass::text AS name FROM pg_class c WHERE c.relkind = 'r'"
            " AND (c.relname LIKE 'job%' AND c.relnamespace = 'public'::regnamespace)",
        )
        for table in tables:
            await run(db, f"ALTER TABLE {table['name']} SET (autovacuum_enabled = off)")
    yield dsn
    await postgres.drop_database("finding")


@pytest.fixture(params=["without statistics", "with statistics"])
async def watched(filled: str, request: pytest.FixtureRequest) -> AsyncIterator[Watched]:
    async with open_database(filled) as db:
        await run(db, "ANALYZE" if request.param == "with statistics" else "DELETE FROM pg_statistic")
        watched = Watched(db.pool("durable"), db.pool("relaxed"))
        watched.seen = []
        yield watched


async def first_step(db: Watched, most: int, **narrowed: Any) -> list[Mapping[str, Any]]:
    """What the first step of a walk finds, which reads at most so many rows of any table."""
    db.seen = []
    found = await reading.page(db, Filter(**narrowed), limit=50, budget=timedelta(0))
    for statement, arguments in db.seen:
        await touches_few_rows(db, statement, arguments, most=most)
    return [{name: getattr(job, name) for name in ("created_at", "kind", "tags", "error_code")} for job in found.jobs]


@pytest.mark.parametrize("narrowed", PAIRS, ids=lambda pair: " and ".join(pair))
async def test_the_oldest_is_found_by_any_two_of_what_it_is(watched: Watched, narrowed: dict[str, Any]) -> None:
    [job] = await first_step(watched, most=20, **narrowed)
    assert (job["kind"], job["tags"], job["error_code"]) == ("export", ["all", "nightly"], "broken")
    oldest_first = await reading.ids(watched, Filter(**narrowed), limit=10)
    assert len(oldest_first.ids) == 1


@pytest.mark.parametrize("narrowed", ONES, ids=lambda one: " ".join(one))
async def test_by_one_of_them_at_a_time_long_ago(watched: Watched, narrowed: dict[str, Any]) -> None:
    # Each kind and status that such jobs have is a walk of its own.
    assert len(await first_step(watched, most=4 * STEP_ROWS, **narrowed)) == 50
    week_ago = (await run(watched, "SELECT paddock_now() - interval '15 days' AS at"))[0]["at"]
    [job] = await first_step(watched, most=20, **narrowed, until=week_ago)
    assert job["created_at"] < week_ago
    assert await first_step(watched, most=20, **narrowed, until=week_ago, since=week_ago - timedelta(days=2)) == []


@pytest.mark.parametrize("narrowed", [{"tag": "all"}, {"status": "failed"}], ids=lambda one: " ".join(one))
async def test_a_long_step_is_shorter_where_many_kinds_are_walked(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, narrowed: dict[str, Any]
) -> None:
    """However many walks are merged, they read no more together; and nothing is left out between two steps."""
    found = await run(watched, ALL_OF[next(iter(narrowed))])
    monkeypatch.setattr(scanning, "MOST_WALKED", 600)
    watched.seen = []
    asked = Filter(**narrowed, include_housekeeping=True)
    assert await reading.count(watched, asked, budget=timedelta(minutes=2), at_most=20_000) == Count(len(found), False)
    oldest_first = await reading.ids(watched, asked, limit=20_000)
    assert list(oldest_first.ids) == [row["id"] for row in found]
    steps = [(statement, arguments) for statement, arguments in watched.seen if statement.name.startswith("scan_")]
    assert len(steps) > 10
    for statement, arguments in [*steps[:3], *steps[-3:]]:
        await touches_few_rows(watched, statement, arguments, most=700)


async def test_a_tag_that_all_have_and_one_that_none_has(watched: Watched) -> None:
    assert len(await first_step(watched, most=4 * STEP_ROWS, tag="all", kind="probe")) == 50
    assert await first_step(watched, most=20, tag="none", kind="probe") == []


async def test_every_page_of_a_tag_has_each_of_its_jobs_once(watched: Watched) -> None:
    seen: list[Any] = []
    cursor = None
    while True:
        page = await reading.page(watched, Filter(tag="nightly"), limit=700, cursor=cursor, budget=timedelta(0))
        seen += [job.id for job in page.jobs]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == sorted(seen, reverse=True)
    assert len(set(seen)) == len(seen) == 2 * NEWER + 1


async def test_the_oldest_live_one_is_found_by_its_tag(dsn: str) -> None:
    """And those of a kind of which few wait, also where newer ones of the kind have other tags."""
    async with open_database(dsn) as db:
        [old] = await add_live(db, 1, tags=("b", "a", "b"), ago="1 hour")
        await add_live(db, NEWER, tags=("c",))
        await run(db, "ANALYZE")
        watched = Watched(db.pool("durable"), db.pool("relaxed"))
        assert len(await first_step(watched, most=10, tag="a", status="pending")) == 1
        assert len(await first_step(watched, most=2 * NEWER, tag="a", kind="probe")) == 1
        await end_some(db, [old])
        assert await first_step(watched, most=10, tag="a", status="pending") == []
        assert await run(db, "SELECT tag FROM job_tags WHERE tag <> 'c'") == []
        assert len(await first_step(watched, most=10, tag="a", status="completed")) == 1
