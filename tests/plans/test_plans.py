"""How the hot statements are planned at 50,000 rows, with statistics, without any, and with ones that are wrong.

The pools plan once for all parameters (generic plans): so do these connections, which have the pools' settings."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TypeAlias
from uuid import uuid4

import asyncpg
import pytest

from paddock.db.pool import PLANNER, Statement, statements
from tests.conftest import Server

pytestmark = pytest.mark.slow  # it makes 50,000 rows of each first
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
ROWS = 50_000
HOT = [
    *(
        ("claiming.sql", name)
        for name in (
            "claim_jobs",
            "claim_shared",
            "claim_only",
            "claimed_before",
            "next_due",
            "due_kinds",
            "any_related",
        )
    ),
    *(("fencing.sql", name) for name in ("save_jobs", "report_jobs", "yield_jobs", "retry_jobs", "release_jobs")),
    *(
        ("fencing.sql", name)
        for name in ("end_jobs", "complete_jobs", "resolve_writes", "attempts_stopped", "note_stale_writes")
    ),
    *(("sessions.sql", name) for name in ("beat_sessions", "note_unlisted", "rescue_jobs", "lost_for_good")),
    *(("sessions.sql", name) for name in ("cleanups_of_the_dead", "overdue_waiting", "overdue_attempts")),
    ("enqueueing.sql", "insert_jobs"),
    ("enqueueing.sql", "lock_holder"),
    *(("acting.sql", name) for name in ("run_now", "ended_job", "retried_by", "is_live")),
]
STATISTICS = ("none", "analysed", "of an empty table")


@pytest.fixture(scope="module")
def filled(postgres: Server) -> Iterator[dict[str, str]]:
    """Databases with 50,000 waiting jobs, 500 running and 50,000 ended, each with other statistics."""
    names = {state: f"plans_{number}" for number, state in enumerate(STATISTICS)}
    made = asyncio.run(_fill(postgres, names))
    yield made
    for name in names.values():
        asyncio.run(postgres.drop_database(name))


async def _fill(postgres: Server, names: dict[str, str]) -> dict[str, str]:
    dsns = {}
    for state, name in names.items():
        dsns[state] = await postgres.create_database(name, "paddock_template")
        connection = await asyncpg.connect(dsns[state])
        try:
            await connection.execute("ALTER TABLE jobs SET (autovacuum_enabled = off)")
            await connection.execute("ALTER TABLE job_history_default SET (autovacuum_enabled = off)")
            if state == "of an empty table":
                await connection.execute("ANALYZE")
            await connection.execute(FILL)
            if state == "analysed":
                await connection.execute("ANALYZE")
        finally:
            await connection.close()
    return dsns


FILL = f"""
INSERT INTO kinds SELECT name, '1 min', '5 min', 5, 50, 5, '5 min', '1 h', '20 min', '0', true, name = 'serial', false, false,
    true, false, NULL, false FROM unnest(ARRAY['plain', 'other', 'serial']) AS name;
INSERT INTO sessions (worker_id, version, kinds, slots, expires_at)
    SELECT 'w' || n, '1', '{{plain}}', 10, paddock_now() + interval '1 day' FROM generate_series(1, 50) n;
INSERT INTO jobs (id, kind, status, priority, due_at, owner, payload, created_at, waiting_on)
    SELECT paddock_id(paddock_now() - n * interval '1 s', n), CASE n % 2 WHEN 0 THEN 'plain' ELSE 'other' END,
           CASE WHEN n % 50 = 0 THEN 'submitted' ELSE 'pending' END, 1 + n % 4,
           paddock_now() - n * interval '1 s', 'ann', '{{"n": 1}}', paddock_now(), CASE WHEN n % 50 = 0 THEN 'query' END
    FROM generate_series(1, {ROWS}) n;
INSERT INTO jobs (id, kind, status, priority, due_at, owner, payload, created_at, started_at, attempt_id, session_id, claim_id, claimed_at)
    SELECT paddock_id(paddock_now(), n), 'plain', 'claimed', 3, paddock_now(), 'ann', '{{}}', paddock_now(), paddock_now(),
           gen_random_uuid(), s.id, gen_random_uuid(), paddock_now()
    FROM sessions s CROSS JOIN generate_series(1, 10) n;
INSERT INTO job_history (id, kind, status, priority, owner, tags, payload, turn_count, failure_count, cluster_count, lost_count,
                         created_at, completed_at, run_seconds, wait_seconds)
    SELECT paddock_id(paddock_now() - n * interval '1 s', n), 'plain', 'completed', 3, 'ann', '{{}}', '{{}}', 1, 0, 0, 0,
           paddock_now(), paddock_now(), 1, 1 FROM generate_series(1, {ROWS}) n;
"""


@pytest.fixture(params=STATISTICS)
async def planner(request: pytest.FixtureRequest, filled: dict[str, str]) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(filled[request.param], server_settings={"timezone": "UTC", **PLANNER})
    yield connection
    await connection.close()


async def plan_of(connection: Connection, statement: Statement) -> list[dict[str, Any]]:
    """Every node of the plan, from the top."""
    return list(_nodes(await explained(connection, statement, "FORMAT json")))


async def explained(
    connection: Connection, statement: Statement, options: str, arguments: Sequence[object] = ()
) -> dict[str, Any]:
    types = [parameter.name for parameter in (await connection.prepare(statement.sql)).get_parameters()]
    given = [*arguments, *[None] * (len(types) - len(arguments))]
    literals = ", ".join(_literal(value, type) for value, type in zip(given, types, strict=True))
    await connection.execute(f"PREPARE {statement.name} AS {statement.sql}")
    try:
        execute = f"EXECUTE {statement.name}({literals})" if types else f"EXECUTE {statement.name}"
        [[text]] = await connection.fetch(f"EXPLAIN ({options}) {execute}")
    finally:
        await connection.execute(f"DEALLOCATE {statement.name}")
    plan: dict[str, Any] = json.loads(text)[0]["Plan"]
    return plan


def _literal(value: object, type: str) -> str:
    if value is None:
        return "NULL"
    text = "{" + ",".join(f'"{part}"' for part in value) + "}" if isinstance(value, list) else str(value)
    return f"'{text}'::{type}"


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _joined(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The node and what it joins, without what it asks row by row."""
    yield node
    for child in node.get("Plans", ()):
        if child["Parent Relationship"] in ("Outer", "Inner"):
            yield from _joined(child)


def _big(node: dict[str, Any]) -> bool:
    return node.get("Relation Name") == "jobs" or str(node.get("Relation Name", "")).startswith("job_history")


def _bounded(node: dict[str, Any]) -> bool:
    """Reached by an index condition, or through an index that holds only a few of the rows."""
    few = {
        "jobs_held",
        "jobs_after_attempt",
        "jobs_cleanup_of",
        "jobs_parent",
        "jobs_retry_of",
        "jobs_serial",
        "jobs_lock",
    }
    return "Index Cond" in node or node.get("Index Name") in few


@pytest.mark.parametrize(("file", "name"), HOT, ids=[name for _, name in HOT])
async def test_every_big_table_is_reached_by_an_index(planner: Connection, file: str, name: str) -> None:
    for node in await plan_of(planner, statements("paddock.jobs.sql", file)[name]):
        if not _big(node) or node["Node Type"] in ("ModifyTable", "Bitmap Heap Scan"):
            continue
        assert node["Node Type"] in ("Index Scan", "Index Only Scan", "Bitmap Index Scan", "Tid Scan"), node
        assert _bounded(node), node


async def test_the_cursor_is_a_leading_bound_of_the_claim(planner: Connection) -> None:
    """Dead index entries before it must not be walked: 50 -> 230 us per job where a snapshot is held open."""
    nodes = await plan_of(planner, statements("paddock.jobs.sql", "claiming.sql")["claim_jobs"])
    scans = [node for node in nodes if node.get("Index Name") == "jobs_due"]
    assert len(scans) == 2, "once to look, once to lock"
    for scan in scans:
        condition = scan["Index Cond"]
        assert re.search(r"kind = .*lane = .*due_at >= .*cursor.*due_at <= ", condition), condition
        assert scan["Scan Direction"] == "Forward"
    # A join back to the table is a hash over all of it once the limit is large.
    for join in (node for node in nodes if node["Node Type"] in ("Hash Join", "Merge Join")):
        assert "jobs" not in {node.get("Relation Name") for node in _joined(join)}


@pytest.mark.parametrize("name", ["end_jobs", "complete_jobs", "save_jobs", "yield_jobs", "retry_jobs", "release_jobs"])
async def test_batches_go_through_their_array_in_its_order(planner: Connection, name: str) -> None:
    """Overlapping batches then lock in the same order. A hash or merge join would lock in another."""
    nodes = await plan_of(planner, statements("paddock.jobs.sql", "fencing.sql")[name])
    writes = [n for n in nodes if n["Node Type"] == "ModifyTable" and n["Relation Name"] == "jobs"]
    changed = next(n for n in writes if n["Operation"] in ("Update", "Delete"))
    # What is asked once, before the first row, joins nothing.
    joined = [part for part in changed["Plans"] if part["Parent Relationship"] != "InitPlan"]
    below = [node for part in joined for node in _nodes(part)]
    joins = [node for node in below if "Join" in node["Node Type"] or node["Node Type"] == "Nested Loop"]
    assert {join["Node Type"] for join in joins} == {"Nested Loop"}
    first = next(node for node in below if not node.get("Plans"))
    assert first["Node Type"] == "Function Scan", "the array is the outer side"
    assert not [node for node in below if node["Node Type"] == "Sort"]


@pytest.mark.parametrize("limit", [10, 1_000])
async def test_a_claim_reads_little_more_than_it_takes(planner: Connection, limit: int) -> None:
    """Asked of the execution, not the plan: rows and blocks touched."""
    claim = statements("paddock.jobs.sql", "claiming.sql")["claim_jobs"]
    pairs = [(kind, lane) for kind in ("plain", "other") for lane in range(5)]
    session = await planner.fetchval("SELECT id FROM sessions LIMIT 1")
    beginning = await planner.fetchval("SELECT '1970-01-01'::timestamptz")
    arguments: list[object] = [
        session,
        uuid4(),
        [kind for kind, _ in pairs],
        [lane for _, lane in pairs],
        [beginning.isoformat()] * len(pairs),
        [1_000] * len(pairs),
        limit,
        None,
        False,
        "w",
        "0" * 32,
    ]
    undone = planner.transaction()
    await undone.start()
    top = await explained(planner, claim, "ANALYZE, BUFFERS, FORMAT json", arguments)
    await undone.rollback()
    assert top["Actual Rows"] == limit
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 600 + 60 * limit
    looked = [node for node in _nodes(top) if node.get("Index Name") == "jobs_due"]
    assert all(node["Actual Rows"] <= limit for node in looked)


async def test_a_claim_steps_over_the_backlog_of_whoever_has_its_share(planner: Connection) -> None:
    claim = statements("paddock.jobs.sql", "claiming.sql")["claim_shared"]
    session = await planner.fetchval("SELECT id FROM sessions LIMIT 1")
    undone = planner.transaction()
    await undone.start()
    await planner.execute(
        "INSERT INTO jobs (id, kind, status, priority, due_at, owner, share_key, payload, created_at)"
        " SELECT paddock_id(paddock_now(), n), 'plain', 'pending', 3, paddock_now() - n * interval '1 s',"
        " CASE WHEN n > 10 THEN 'ann' ELSE 'bob' END, CASE WHEN n > 10 THEN 'slow' ELSE 'quick' END, '{}', paddock_now()"
        " FROM generate_series(1, 10010) n"
    )
    arguments = [session, uuid4(), ["plain"], [1_000], [10], [5], "0" * 32, 100, "w"]
    top = await explained(planner, claim, "ANALYZE, BUFFERS, FORMAT json", arguments)
    await undone.rollback()
    assert top["Actual Rows"] == 10, "five of each"
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 5_000, "most of them dead rows of other tests"
    for node in _nodes(top):
        if node.get("Index Name") == "jobs_shared":
            assert node["Actual Rows"] <= 5


async def test_ending_a_thousand_jobs_touches_only_them(planner: Connection) -> None:
    end = statements("paddock.jobs.sql", "fencing.sql")["end_jobs"]
    rows = await planner.fetch("SELECT id, attempt_id FROM jobs WHERE attempt_id IS NOT NULL ORDER BY id")
    undone = planner.transaction()
    await undone.start()
    n = len(rows)
    arguments: list[object] = [
        [row["id"] for row in rows],
        [row["attempt_id"] for row in rows],
        ["failed"] * n,
        [],
        ["x"] * n,
        ["x"] * n,
    ]
    arguments += [[], False, False, None, None, None, True]
    top = await explained(planner, end, "ANALYZE, BUFFERS, FORMAT json", arguments)
    await undone.rollback()
    assert top["Actual Rows"] == len(rows) == 500
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 80 * len(rows)


@pytest.mark.parametrize("with_begun", [False, True])
async def test_a_scaler_reads_ten_thousand_jobs_however_many_wait(planner: Connection, with_begun: bool) -> None:
    body = await planner.fetchval("SELECT pg_get_function_sqlbody('paddock_work(text[], boolean)'::regprocedure)")
    query = body.removeprefix("RETURN").replace("paddock_work.kinds", "'{plain,other}'::text[]")
    query = query.replace("paddock_work.with_begun", str(with_begun))
    [[text]] = await planner.fetch(f"EXPLAIN (ANALYZE, FORMAT json) SELECT {query}")
    read = 0
    for node in _nodes(json.loads(text)[0]["Plan"]):
        if _big(node):
            assert node["Node Type"] in ("Index Scan", "Index Only Scan"), node
            assert _bounded(node), node
            read += (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    assert 10_000 <= read <= 11_000, "of 50,000 that wait"
    assert await planner.fetchval("SELECT paddock_backlog('{plain,other}')") == 10_000
    assert await planner.fetchval("SELECT paddock_unfinished('{plain,other}')") == 10_000


async def test_a_scaler_plans_like_us_whatever_its_connection_says(planner: Connection) -> None:
    config = await planner.fetchval("SELECT proconfig FROM pg_proc WHERE proname = 'paddock_work'")
    assert {"enable_seqscan=off", "enable_bitmapscan=off"} <= set(config)
