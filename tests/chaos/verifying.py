"""What must be true when the dust has settled."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import orjson

KINDS = ["probe", "probe_blocking"]


@dataclass
class Findings:
    wrong: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def check(self, good: bool, sentence: str) -> None:
        if not good:
            self.wrong.append(sentence)


async def verify(
    dsn: str, ids: Collection[str], retries: Collection[str], cancelled: Collection[str], ledger: Path
) -> Findings:
    found = Findings()
    connection = await asyncpg.connect(dsn)
    try:
        await _check_ends(connection, found, ids, retries, cancelled)
        await _check_outputs(connection, found, ledger)
        await _check_cleanups(connection, found)
        await _check_leftovers(connection, found)
        await _check_groups(connection, found)
        await _count(connection, found)
    finally:
        await connection.close()
    return found


async def _check_ends(
    connection: "asyncpg.Connection[asyncpg.Record]",
    found: Findings,
    ids: Collection[str],
    retries: Collection[str],
    cancelled: Collection[str],
) -> None:
    rows = await connection.fetch(
        "SELECT id::text, status, retry_of IS NOT NULL AS again FROM job_history WHERE kind = ANY ($1) AND cleanup_of IS NULL",
        KINDS,
    )
    ends = Counter(row["id"] for row in rows)
    twice = [id for id, n in ends.items() if n > 1]
    found.check(not twice, f"I1: {len(twice)} jobs ended more than once: {twice[:3]}")
    accepted = set(ids) | set(retries)
    lost = accepted - ends.keys()
    found.check(not lost, f"I2: {len(lost)} accepted jobs never ended: {sorted(lost)[:3]}")
    # A retry whose answer never came is no job anybody was told of, but its key made it one at most.
    strangers = {row["id"] for row in rows if not row["again"]} - accepted
    found.check(not strangers, f"{len(strangers)} jobs that nobody was told of: a submission was taken twice")
    status = {row["id"]: row["status"] for row in rows}
    undone = [id for id in cancelled if status.get(id) != "cancelled"]
    found.check(not undone, f"I1: {len(undone)} cancelled jobs ended otherwise: {undone[:3]}")
    found.figures |= {"jobs": len(ends), **{f"jobs {name}": n for name, n in sorted(Counter(status.values()).items())}}


async def _check_outputs(connection: "asyncpg.Connection[asyncpg.Record]", found: Findings, ledger: Path) -> None:
    """The ledger is the effect outside: the attempt that completed the job is in it exactly once."""
    lines = Counter(tuple(line.split()) for line in ledger.read_text().splitlines())
    rows = await connection.fetch(
        "SELECT id::text, ended_by::text, payload, result FROM job_history"
        " WHERE kind = ANY ($1) AND cleanup_of IS NULL AND status = 'completed'",
        KINDS,
    )
    wrong = [row["id"] for row in rows if lines[(row["id"], row["ended_by"])] != 1]
    found.check(
        not wrong, f"I3: {len(wrong)} completed jobs whose winner is not in the ledger exactly once: {wrong[:3]}"
    )
    results = [r["id"] for r in rows if orjson.loads(r["payload"])["result"] != orjson.loads(r["result"] or "null")]
    found.check(not results, f"{len(results)} completed jobs with another result: {results[:3]}")
    repeated = sum(n > 1 for n in lines.values())
    found.check(not repeated, f"{repeated} attempts wrote their line twice")
    found.figures["ledger lines"] = lines.total()


async def _check_cleanups(connection: "asyncpg.Connection[asyncpg.Record]", found: Findings) -> None:
    rows = await connection.fetch(
        "SELECT h.id::text, count(c.id) AS n FROM job_history h LEFT JOIN job_history c ON c.cleanup_of = h.id"
        " WHERE h.kind = ANY ($1) AND h.cleanup_of IS NULL AND h.status <> 'completed' AND h.turn_count > 0 GROUP BY h.id",
        KINDS,
    )
    missing = [row["id"] for row in rows if row["n"] != 1]
    found.check(not missing, f"{len(missing)} jobs were not cleaned up exactly once: {missing[:3]}")
    found.figures["cleanups"] = len(rows)


async def _check_leftovers(connection: "asyncpg.Connection[asyncpg.Record]", found: Findings) -> None:
    live = await connection.fetch("SELECT id, status, lock_key, cleanup_of FROM jobs WHERE kind = ANY ($1)", KINDS)
    found.check(not live, f"I2: {len(live)} jobs are still there: {live[:2]}")
    locks = await connection.fetchval("SELECT count(*) FROM jobs WHERE lock_key IS NOT NULL AND kind = ANY ($1)", KINDS)
    found.check(locks == 0, f"I5: {locks} locks are left")
    claimed = await connection.fetchval(
        "SELECT count(*) FROM jobs WHERE attempt_id IS NOT NULL AND kind = ANY ($1)", KINDS
    )
    found.check(claimed == 0, f"{claimed} jobs are still claimed")


async def _check_groups(connection: "asyncpg.Connection[asyncpg.Record]", found: Findings) -> None:
    """The counters against the last job of each retry chain."""
    rows = await connection.fetch(
        """
        SELECT g.id, g.open, g.failed, g.cancelled, g.total, g.ended_at IS NOT NULL AS ended, g.hook_due,
               count(h.id) AS jobs, count(h.id) FILTER (WHERE h.status = 'failed') AS jobs_failed,
               count(h.id) FILTER (WHERE h.status = 'cancelled') AS jobs_cancelled
        FROM groups g LEFT JOIN job_history h ON h.group_id = g.id AND h.cleanup_of IS NULL
             AND NOT EXISTS (SELECT FROM job_history r WHERE r.retry_of = h.id)
        GROUP BY g.id"""
    )
    wrong = [
        dict(row)
        for row in rows
        if not row["ended"]
        or row["hook_due"]
        or (row["open"], row["failed"], row["cancelled"], row["total"])
        != (0, row["jobs_failed"], row["jobs_cancelled"], row["jobs"])
    ]
    found.check(not wrong, f"I4: {len(wrong)} groups are wrong: {wrong[:2]}")
    found.figures["groups"] = len(rows)


async def _count(connection: "asyncpg.Connection[asyncpg.Record]", found: Findings) -> None:
    rows = await connection.fetch("SELECT event, count(*) AS n FROM job_timeline GROUP BY event ORDER BY event")
    told = {row["event"]: row["n"] for row in rows}
    found.figures |= {
        "rescues": told.get("rescued", 0),
        "failed worker_lost": told.get("worker_lost", 0),
        "stale writes refused": told.get("stale_write", 0),
        "released": told.get("released", 0),
        "retries after a failure": told.get("retry", 0),
        "sessions": await connection.fetchval("SELECT count(*) FROM sessions"),
    }
