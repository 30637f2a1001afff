"""Every hot reading at 50,000 jobs reaches its rows by an index and touches few of them, with and without statistics."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio

from paddock.api import auditing, facts
from paddock.db.pool import Database, Statement, open_database
from paddock.jobs import bulk, logs, reading, schedules, upkeep
from paddock.jobs.figures import histograms, overviews, running
from paddock.jobs.filtering import Filter, least_id
from paddock.jobs.partitions import HISTORY, LOGS, make_ahead
from tests.conftest import Server
from tests.reading.rows import add_ended, add_kind, add_live, run

pytestmark = pytest.mark.slow  # it makes 50,000 rows of each first

BIG = ("jobs", "job_history", "job_logs", "job_timeline", "idempotency_keys", "audit_log", "groups", "events")
# One entry in 50,000 has an action, an actor or a subject of its own; `often` does much, and `seldom` only there.
AUDIT_LOG = """
INSERT INTO audit_log (id, actor, action, subject)
SELECT paddock_id(paddock_now() - make_interval(secs => i), i), CASE WHEN i = 40000 THEN 'rare' ELSE 'often' END,
       CASE WHEN i IN (30000, 40000) THEN 'seldom' WHEN i % 2 = 0 THEN 'cancel' ELSE 'retry' END, 'job:' || i
FROM generate_series(1, 50000) i
"""
# One event in 50,000 has an owner or a type of its own; `often` has many, and one that is `seldom`.
EVENTS = """
INSERT INTO events (id, type, subject, version, owner, data)
SELECT paddock_id(paddock_now() - make_interval(secs => i), i), CASE WHEN i IN (30000, 40000) THEN 'seldom' ELSE 'job.completed' END,
       'job:' || i, 1, CASE WHEN i = 40000 THEN 'rare' ELSE 'often' END, '{}'
FROM generate_series(1, 50000) i
"""
GROUPS = """
INSERT INTO groups (id, kind, owner, ended_at)
SELECT paddock_id(paddock_now(), i), 'probe', 'ann', paddock_now() - make_interval(mins => i) FROM generate_series(1, 50000) i
"""
# A page looks at 500 rows of each table, then at 2,000; a kind's few pending ones are read whole.
MOST_ROWS = 5_100

# Of a page's first step, which is of 500 rows of each table.
STEP_ROWS = 520

Seen = list[tuple[Statement, Sequence[object]]]


class Watched(Database):
    """Remembers what was asked of it."""

    seen: Seen

    async def fetch(self, statement: Statement, *arguments: object) -> Sequence[asyncpg.Record]:
        self.seen.append((statement, arguments))
        return await super().fetch(statement, *arguments)

    async def fetchval(self, statement: Statement, *arguments: object) -> Any:
        self.seen.append((statement, arguments))
        return await super().fetchval(statement, *arguments)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filled(postgres: Server) -> AsyncIterator[str]:
    """50,000 jobs and their logs: half of them live, the ended ones in partitions and in the default one."""
    name = "plans"
    dsn = await postgres.create_database(name, "paddock_template")
    async with open_database(dsn) as db:
        await run(db, "ALTER TABLE jobs SET (autovacuum_enabled = off)")
        await run(db, "ALTER TABLE job_history_default SET (autovacuum_enabled = off)")
        await run(db, "ALTER TABLE job_history_tags_default SET (autovacuum_enabled = off)")
        now = (await run(db, "SELECT paddock_now() AS now"))[0]["now"]
        await add_kind(db, "rare")
        await add_kind(db, "probe")
        for kind, owner, n in (("probe", "ann", 23_000), ("rare", "bob", 500)):
            await add_live(db, n, kind=kind, owner=owner, ago="1 minute")
            await add_ended(db, n, kind=kind, owner=owner, ago="10 days", tags=("t",))
        await make_ahead(db, HISTORY, now)
        await make_ahead(db, LOGS, now)
        await add_ended(db, 1_000, status="failed", error=("broken", "It broke."), ago="1 second")
        await run(
            db,
            "UPDATE jobs SET status = 'claimed', attempt_id = gen_random_uuid(), session_id = gen_random_uuid() WHERE id IN (SELECT id FROM jobs LIMIT 100)",
        )
        await run(
            db,
            """INSERT INTO job_logs (job_id, attempt_id, seq, at, lines)
               SELECT id, gen_random_uuid(), 1, paddock_now() - interval '1 hour', 'x' FROM jobs""",
        )
        await run(db, "INSERT INTO job_timeline (job_id, event) SELECT id, 'x' FROM jobs")
        await run(db, "INSERT INTO idempotency_keys SELECT 'ann', '/', id::text, '' FROM jobs")
        await run(db, AUDIT_LOG)
        await run(db, GROUPS)
        await run(db, EVENTS)
        for table in ("job_history", "job_history_tags", "job_logs"):
            for row in await run(
                db,
                "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = $1::text::regclass",
                table,
            ):
                for index in await run(
                    db, "SELECT indexname FROM pg_indexes WHERE tablename = $1 AND indexdef LIKE '%brin%'", row["name"]
                ):
                    await run(db, "SELECT brin_summarize_new_values($1::text::regclass)", index["indexname"])
    yield dsn
    await postgres.drop_database(name)


@pytest.fixture(params=["without statistics", "with statistics"])
async def watched(filled: str, request: pytest.FixtureRequest) -> AsyncIterator[Watched]:
    async with open_database(filled) as db:
        if request.param == "with statistics":
            await run(db, "ANALYZE")
        else:
            await run(db, "DELETE FROM pg_statistic")
        watched = Watched(db.pool("durable"), db.pool("relaxed"))
        watched.seen = []
        yield watched


async def test_pages_touch_few_rows(watched: Watched) -> None:
    [some] = (await reading.page(watched, Filter(), limit=1)).jobs
    for asked in (
        Filter(),
        Filter(kind="probe"),
        Filter(kind="rare"),
        Filter(kind="rare", status="completed"),
        Filter(kind="nothing at all", status="completed"),
        Filter(owner="nobody", status="completed"),
        Filter(owner="bob", status="completed"),
        Filter(status="failed"),
        Filter(status="failed", kind="probe"),
        Filter(status="failed", kind="rare"),
        Filter(status="failed", owner="bob"),
        Filter(status="failed", owner="nobody", kind="probe"),
        Filter(status="claimed"),
        Filter(status="submitted"),
        Filter(status="pending"),
        Filter(error_code="broken"),
        Filter(q="roke"),
        Filter(q=str(some.id)[:13]),
        Filter(group=uuid4()),
        Filter(worker="w"),
        Filter(schedule="s"),
        Filter(ids=(some.id,)),
        Filter(tag="t"),
        Filter(retrying=True),
    ):
        await reading.page(watched, asked, limit=100, budget=timedelta(0))
        await reading.newer(watched, asked, after=some.id, budget=timedelta(0))
        await reading.ids(watched, bulk.narrow("retry", asked), limit=100)
    await reading.jobs(watched, [some.id])
    assert len(watched.seen) > 30
    for statement, arguments in watched.seen:
        await touches_few_rows(watched, statement, arguments)


async def test_overviews_logs_and_schedules_touch_few_rows(watched: Watched) -> None:
    [some] = (await reading.page(watched, Filter(), limit=1)).jobs
    watched.seen.clear()
    await reading.timeline(watched, some.id)
    await reading.related(watched, replace(some, retry_of=some.id, cleanup_of=some.id))
    await reading.workers(watched)
    await reading.kinds(watched)
    await logs.tail(watched, some.id)
    await logs.tail(watched, some.id, (await logs.tail(watched, some.id)).after)
    await schedules.page(watched)
    for statement, arguments in watched.seen:
        await touches_few_rows(watched, statement, arguments)
    now = (await run(watched, "SELECT paddock_now() AS now"))[0]["now"]
    await touches_few_rows(watched, schedules.SQL["due_schedules"], [20, False, ["probe"]])
    await touches_few_rows(watched, logs.SQL["append_logs"], [[some.id], [some.id], [1], ["x"], [0]])
    ten_seconds = (now - timedelta(seconds=10), now, list(histograms.BOUNDS))
    await touches_few_rows(watched, histograms.filled("count_ended"), ten_seconds)
    await touches_few_rows(watched, histograms.SQL["count_errors"], ten_seconds[:2])
    await touches_few_rows(watched, histograms.SQL["measure_queue"], [1_000])
    await touches_few_rows(watched, overviews.SQL["retried"], ["probe", 1_000])
    await touches_few_rows(watched, running.SQL["running_long"], [timedelta(minutes=1), 200])
    owner = overviews.SQL["owner_counts"]
    await touches_few_rows(watched, owner, ["bob", timedelta(days=30), 2_000, 2_000])


async def test_pages_of_the_audit_log_touch_few_rows(watched: Watched) -> None:
    now = (await run(watched, "SELECT paddock_now() AS now"))[0]["now"]
    rare: Sequence[dict[str, Any]] = (
        {"subject": "job:40000"},
        {"actor": "rare"},
        {"action": "seldom"},
        {"actor": "often", "action": "seldom"},
        {"subject": "job:40000", "action": "seldom", "actor": "rare"},
    )
    none: Sequence[dict[str, Any]] = (
        {"actor": "nobody"},
        {"subject": "job:40000", "actor": "often"},
        {"actor": "rare", "action": "cancel"},
        {"subject": "job:40000", "action": "cancel"},
    )
    many: Sequence[dict[str, Any]] = ({}, {"actor": "often"}, {"action": "cancel"})
    for least, asked in [*((1, asked) for asked in rare), *((0, asked) for asked in none), *((100, a) for a in many)]:
        for since, before in ((None, None), (now - timedelta(days=1), None), (None, least_id(now))):
            whole = {"subject": None, "action": None, "actor": None} | asked
            found = await auditing.page(watched, before=before, since=since, limit=100, **whole)
            assert len(found) >= least, asked
    several = await auditing.of_actions(watched, ["seldom", "nothing"], since=now - timedelta(days=1), limit=20)
    assert len(several) == 2
    for statement, arguments in watched.seen:
        await touches_few_rows(watched, statement, arguments, most=200)


async def test_pages_of_events_touch_few_rows(watched: Watched) -> None:
    for expected, owner, type in (
        (100, None, None),
        (100, "often", None),
        (100, None, "job.completed"),
        (100, "often", "job.completed"),
        (2, None, "seldom"),
        (1, "often", "seldom"),
        (1, "rare", None),
        (1, "rare", "seldom"),
        (0, "rare", "job.completed"),
        (0, "nobody", "seldom"),
        (0, "often", "nothing"),
    ):
        found = await facts.events_page(watched, owner, before=None, subject=None, type=type, limit=100)
        ids = [event["id"] for event in found]
        assert (len(ids), ids) == (expected, sorted(ids, reverse=True)), (owner, type)
    assert await facts.events_page(watched, None, before=None, subject="job:40000", type="seldom", limit=100)
    for statement, arguments in watched.seen:
        await touches_few_rows(watched, statement, arguments, most=200)


async def test_upkeep_touches_few_rows(watched: Watched) -> None:
    now = (await run(watched, "SELECT paddock_now() AS now"))[0]["now"]
    old = now - timedelta(days=1)
    for name, arguments in {
        "trim_housekeeping": [200, 100],
        "trim_timeline": [500, 1_000],
        "trim_logs": [now - timedelta(minutes=15), 1_000, 1_000],
        "expire_timeline": [old, 1_000],
        "expire_keys": [old, 1_000],
        "expire_sessions": [old, 1_000],
        "trim_default_history": [now - timedelta(days=30), 1_000],
        "trim_default_tags": [now - timedelta(days=30), 1_000],
        "expire_audit_log": [now - timedelta(hours=1), 1_000],
        "expire_groups": [old, 1_000],
    }.items():
        await touches_few_rows(watched, upkeep.SQL[name], arguments)


async def touches_few_rows(
    db: Database, statement: Statement, arguments: Sequence[object], most: int = MOST_ROWS
) -> None:
    async with db.pool(statement.pool).acquire() as connection, connection.transaction():
        values = f"({', '.join(map(literal, arguments))})" if arguments else ""
        await connection.execute(f"PREPARE looked_at AS {statement.sql}")
        text = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE looked_at{values}")
        await connection.execute("DEALLOCATE looked_at")
    for node in nodes(json.loads(text)[0]["Plan"]):
        if not str(node.get("Relation Name", "")).startswith(BIG):
            continue
        assert node["Node Type"] != "Seq Scan" or node["Actual Rows"] == 0, (statement.name, arguments, node)
        removed = sum(node.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Index Recheck"))
        touched = (node["Actual Rows"] + removed) * node["Actual Loops"]
        assert touched <= most, (statement.name, arguments, node)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from nodes(part)


def literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return "'{" + ",".join(map(str, value)) + "}'"
    assert isinstance(value, str | UUID | datetime | timedelta)
    return "'" + str(value).replace("'", "''") + "'"


@pytest.mark.parametrize("statistics", [False, True])
async def test_a_step_through_what_is_much_of_one_sort_reads_a_piece_of_it(dsn: str, statistics: bool) -> None:
    """However many jobs failed and wait, or belong to one group or schedule."""
    group = uuid4()
    async with open_database(dsn) as db:
        await run(db, "ALTER TABLE jobs SET (autovacuum_enabled = off)")
        await add_kind(db, "probe")
        await add_live(db, 100, owner="bob")
        await add_ended(db, 4_000)
        await run(db, "UPDATE job_history SET group_id = $1, schedule = 'often'", group)
        await add_ended(db, 4_000, kind="other", ago="1 hour")
        await add_live(db, 8_000, ago="1 minute")
        await run(
            db,
            """UPDATE jobs SET failure_count = 1, error_code = 'worn', error_message = 'It wore out.', group_id = $1,
                   schedule = 'often', started_at = created_at WHERE owner = 'ann'""",
            group,
        )
        # Without statistics a group is taken for small only where the table is.
        await run(db, "ANALYZE" if statistics else "VACUUM jobs")
        watched = Watched(db.pool("durable"), db.pool("relaxed"))
        for asked, least in {
            Filter(retrying=True): 100,
            Filter(retrying=True, owner="ann"): 100,
            Filter(retrying=True, owner="bob"): 0,
            Filter(error_code="worn"): 100,
            Filter(error_code="nothing"): 0,
            Filter(q="wore"): 0,
            Filter(q="nothing"): 0,
            Filter(group=group): 100,
            Filter(group=group, status="failed"): 0,
            Filter(schedule="often"): 100,
        }.items():
            watched.seen = []
            found = await reading.page(watched, asked, limit=100, budget=timedelta(0))
            assert len(found.jobs) == least, asked
            for statement, arguments in watched.seen:
                await touches_few_rows(watched, statement, arguments, most=STEP_ROWS)
