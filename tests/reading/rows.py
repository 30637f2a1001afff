"""Rows as the core would have written them."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from paddock.db.pool import Database, Statement


async def run(db: Database, sql: str, *arguments: object) -> Any:
    return await db.fetch(Statement("test", sql, "durable"), *arguments)


async def add_kind(db: Database, name: str, *, housekeeping: bool = False) -> None:
    await run(
        db,
        """INSERT INTO kinds (name, backoff_first, backoff_cap, failure_limit, cluster_limit, loss_limit, patience,
               may_repeat, serial, internal, housekeeping, has_cleanup, has_end_hook)
           VALUES ($1, '60 s', '5 min', 5, 50, 5, '0', true, false, false, $2, false, false) ON CONFLICT DO NOTHING""",
        name,
        housekeeping,
    )


async def add_live(
    db: Database,
    n: int,
    *,
    kind: str = "probe",
    owner: str = "ann",
    ago: str = "0 s",
    tags: Sequence[str] = (),
) -> list[UUID]:
    """`n` pending jobs made in the same instant."""
    rows = await run(
        db,
        """INSERT INTO jobs (id, kind, status, priority, due_at, owner, tags, payload, created_at)
           SELECT paddock_id(at, i), $2, 'pending', 3, at, $3, $5, '{}', at
           FROM generate_series(1, $1) i, LATERAL (SELECT paddock_now() - $4::text::interval AS at) t RETURNING id""",
        n,
        kind,
        owner,
        ago,
        list(tags),
    )
    return sorted(row["id"] for row in rows)


async def add_ended(
    db: Database,
    n: int,
    *,
    kind: str = "probe",
    owner: str = "ann",
    status: str = "completed",
    error: tuple[str, str] | None = None,
    ago: str = "0 s",
    tags: Sequence[str] = (),
) -> list[UUID]:
    code, message = error or (None, None)
    rows = await run(
        db,
        """INSERT INTO job_history (id, kind, status, priority, owner, tags, payload, turn_count, failure_count,
               cluster_count, lost_count, error_code, error_message, created_at, started_at, claimed_at, completed_at,
               run_seconds, wait_seconds)
           SELECT paddock_id(at, i), $2, $4, 3, $3, $8, '{}', 1, 0, 0, 0, $5, $6, at, at, at, at, 0, 0
           FROM generate_series(1, $1) i, LATERAL (SELECT paddock_now() - $7::text::interval AS at) t RETURNING id""",
        n,
        kind,
        owner,
        status,
        code,
        message,
        ago,
        list(tags),
    )
    return sorted(row["id"] for row in rows)


async def end_some(db: Database, ids: list[UUID]) -> None:
    """Moves live rows to history in one statement, as a finish does."""
    await run(
        db,
        """WITH gone AS (DELETE FROM jobs WHERE id = ANY ($1::uuid[]) RETURNING *)
           INSERT INTO job_history (id, kind, status, priority, owner, tags, payload, turn_count, failure_count,
               cluster_count, lost_count, created_at, completed_at, run_seconds, wait_seconds)
           SELECT id, kind, 'completed', priority, owner, tags, payload, turn_count, failure_count, cluster_count,
               lost_count, created_at, paddock_now(), run_seconds, wait_seconds FROM gone""",
        ids,
    )
