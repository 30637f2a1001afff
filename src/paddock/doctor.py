"""Is everything as it should be? The checks that only the control plane can make, each with what to do.

A check that cannot be made is itself a finding; one that hangs is given up. Nothing here changes anything, except
that the object store gets a small object and loses it again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import asyncpg

from paddock.config import Config
from paddock.db.migrate import OLDEST_SERVER, read_migrations
from paddock.db.pool import UNAVAILABLE, Statement
from paddock.jobs import reading
from paddock.jobs.core import Core
from paddock.log import scrub

if TYPE_CHECKING:
    from fastapi import APIRouter

    from paddock.storage.store import Store

Level = Literal["ok", "warning", "broken"]

LONGEST_CHECK = 10.0
SKEW = timedelta(seconds=2)
LATE = timedelta(minutes=5)
OLD_SNAPSHOT = timedelta(minutes=10)
FULL_QUEUE = 0.1
FULL_CONNECTIONS = 0.8


@dataclass(frozen=True)
class Finding:
    check: str
    level: Level
    message: str
    what_to_do: str | None = None


def ok(check: str, message: str) -> Finding:
    return Finding(check, "ok", message)


def warning(check: str, message: str, what_to_do: str) -> Finding:
    return Finding(check, "warning", message, what_to_do)


def broken(check: str, message: str, what_to_do: str) -> Finding:
    return Finding(check, "broken", message, what_to_do)


Check = Callable[[Core, Config], AsyncIterator[Finding]]

VERSION = Statement(
    "doctor_version",
    "SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int / 10000 AS major, "
    "pg_is_in_recovery() AS standby",
    "durable",
)
MIGRATIONS = Statement("doctor_migrations", "SELECT version, name FROM schema_migrations ORDER BY version", "durable")
DURABILITY = Statement(
    "doctor_durability",
    "SELECT current_setting('synchronous_commit') AS synchronous_commit, current_setting('fsync') AS fsync, "
    "current_setting('full_page_writes') AS full_page_writes, "
    "(SELECT count(*) FROM pg_stat_replication) AS standbys, "
    "(SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS synchronous",
    "durable",
)
CLOCK = Statement("doctor_clock", "SELECT clock_timestamp() AS at", "durable")
PRESSURE = Statement(
    "doctor_pressure",
    "SELECT pg_notification_queue_usage() AS queue, (SELECT count(*) FROM pg_stat_activity) AS connections, "
    "current_setting('max_connections')::int AS most, "
    "(SELECT max(clock_timestamp() - xact_start) FROM pg_stat_activity "
    "WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend') AS oldest",
    "durable",
)
OLDEST_DUE = Statement(
    "doctor_oldest_due",
    "SELECT k.name, d.due_at, paddock_now() - d.due_at AS late FROM kinds k CROSS JOIN LATERAL "
    "(SELECT min(j.due_at) AS due_at FROM jobs j WHERE j.kind = k.name AND j.attempt_id IS NULL) d "
    "WHERE d.due_at <= paddock_now() AND NOT k.paused ORDER BY d.due_at LIMIT 1",
    "durable",
)
SERVICE = Statement("doctor_service", "SELECT drained, drain_reason FROM service", "durable")
PROBLEMS = Statement(
    "doctor_schedules", "SELECT name, last_problem FROM schedules WHERE enabled AND last_problem IS NOT NULL", "durable"
)


async def server_checks(core: Core, config: Config) -> list[Finding]:
    found: list[Finding] = []
    for name, check in CHECKS.items():
        try:
            async with asyncio.timeout(LONGEST_CHECK):
                found += [finding async for finding in check(core, config)]
        except TimeoutError:
            found.append(
                broken(name, f"No answer within {LONGEST_CHECK:.0f} s.", "Look at the database's log and load.")
            )
        except UNAVAILABLE as problem:
            told = scrub(f"The check failed: {type(problem).__name__}: {problem}", limit=500)
            found.append(broken(name, told, "Look at the log of the control plane and of the database."))
    return found


async def _database(core: Core, config: Config) -> AsyncIterator[Finding]:
    row = await _row(core, VERSION)
    if row["major"] < OLDEST_SERVER:
        yield broken("database", f"PostgreSQL {row['version']} is too old.", f"Upgrade to {OLDEST_SERVER} or newer.")
    elif row["standby"]:
        yield broken("database", "This PostgreSQL is a standby: nothing can be written.", "Name the primary's address.")
    else:
        yield ok("database", f"PostgreSQL {row['version']}.")


async def _migrations(core: Core, config: Config) -> AsyncIterator[Finding]:
    known = {migration.version: migration.name for migration in read_migrations(files("paddock.db") / "migrations")}
    applied = {row["version"]: row["name"] for row in await core.db.fetch(MIGRATIONS)}
    missing = [name for version, name in known.items() if version not in applied]
    newer = [name for version, name in applied.items() if version not in known]
    if missing:
        yield broken(
            "migrations", f"Not applied: {', '.join(missing)}.", "Start `paddock serve` of this release again."
        )
    elif newer:
        told = f"The database has migrations of a newer release: {', '.join(newer)}."
        yield warning("migrations", told, "Finish the upgrade: start the newer release everywhere.")
    else:
        yield ok("migrations", f"{len(applied)} applied, none missing.")


async def _durability(core: Core, config: Config) -> AsyncIterator[Finding]:
    row = await _row(core, DURABILITY)
    if row["synchronous_commit"] == "off" or row["fsync"] == "off" or row["full_page_writes"] == "off":
        settings = ", ".join(f"{name} = {row[name]}" for name in ("synchronous_commit", "fsync", "full_page_writes"))
        yield broken(
            "durability", f"A crash can lose accepted jobs ({settings}).", "Switch all three on in postgresql.conf."
        )
    elif row["standbys"] and not row["synchronous"]:
        yield warning(
            "durability",
            f"{row['standbys']} standby, none of them synchronous: after a failover accepted jobs may be gone, and jobs "
            "that were done may run again.",
            "Set synchronous_standby_names, so that a commit waits for a standby.",
        )
    else:
        standby = "with a synchronous standby" if row["synchronous"] else "no standby"
        yield ok("durability", f"Commits wait for the disk; {standby}.")


async def _clock(core: Core, config: Config) -> AsyncIterator[Finding]:
    before = datetime.now(UTC)
    at = (await _row(core, CLOCK))["at"]
    after = datetime.now(UTC)
    skew = max(at - after, before - at, timedelta(0))
    told = f"The control plane's clock and the database's differ by {skew.total_seconds():.1f} s."
    if skew > SKEW:
        yield warning("clock", told, "Set both by NTP. Only the database's decides anything, but logs will confuse.")
    else:
        yield ok("clock", told)


async def _object_store(core: Core, config: Config) -> AsyncIterator[Finding]:
    from paddock.storage.store import open_store

    began = time.monotonic()
    try:
        store = open_store(config.object_store)
        await _write_read_delete(store)
        needs_rule = await store.needs_lifecycle_rule()
    except Exception as problem:  # whatever a store's library raises, it is this finding
        told = scrub(f"{config.object_store}: {type(problem).__name__}: {problem}", limit=500)
        yield broken("object store", told, "Check PADDOCK_OBJECT_STORE, and that its credentials may write and delete.")
        return
    told = f"{scrub(store.url)}: write, read, delete in {1000 * (time.monotonic() - began):.0f} ms."
    if needs_rule:
        # Uploads that were killed cannot be listed here; only the store itself can take them away.
        told += " See that it has a lifecycle rule that aborts incomplete multipart uploads after a week"
        told += ", or let Paddock list them (s3:ListBucketMultipartUploads)." if store.url.startswith("s3:") else "."
    yield ok("object store", told)


async def _write_read_delete(store: "Store") -> None:
    key, content = f".paddock-doctor/{uuid4()}", b"A small object that proves the way there and back."
    await store.put(key, content)
    try:
        if await store.read(key) != content:
            raise ValueError("what was read is not what was written")
    finally:
        await store.delete([key])


async def _workers(core: Core, config: Config) -> AsyncIterator[Finding]:
    import paddock

    live = [worker for worker in await reading.workers(core.db) if worker.live]
    outside = [worker for worker in live if not _inside(core, worker.kinds)]
    if not outside:
        yield broken("workers", "No live worker.", "Start one: `paddock worker`.")
        return
    versions = sorted({worker.version for worker in live})
    running, slots = sum(worker.running for worker in outside), sum(worker.slots for worker in outside)
    told = f"{len(outside)} live, {running} of {slots} slots taken."
    if versions != [paddock.__version__]:
        other = ", ".join(versions)
        yield warning(
            "workers", f"{told} Versions {other}; the server has {paddock.__version__}.", "Finish the upgrade."
        )
    else:
        yield ok("workers", told)


def _inside(core: Core, kinds: Any) -> bool:
    """The worker inside a control plane offers internal kinds only."""
    return all((kind := core.kinds.get(name)) is not None and kind.internal for name in kinds)


async def _kinds(core: Core, config: Config) -> AsyncIterator[Finding]:
    kinds = await reading.kinds(core.db)
    unoffered = [kind.name for kind in kinds if not kind.offered and (kind.name in core.kinds or kind.pending)]
    if unoffered:
        yield warning(
            "kinds",
            f"No live worker offers {', '.join(unoffered)}: jobs of it wait.",
            "Start a worker that has it (`paddock worker --kinds ...`), with a token that allows it.",
        )
    for kind in kinds:
        if kind.paused:
            why = f": {kind.pause_reason}" if kind.pause_reason else ""
            told = f"{kind.name} was paused by {kind.paused_by}{why}; {kind.pending} jobs wait."
            yield warning("kinds", told, f"`paddock kinds resume {kind.name}` when the reason is gone.")
    if not unoffered and not any(kind.paused for kind in kinds):
        yield ok("kinds", f"{len(kinds)} kinds, all offered, none paused.")


async def _drain(core: Core, config: Config) -> AsyncIterator[Finding]:
    row = await _row(core, SERVICE)
    if row["drained"]:
        why = f" ({row['drain_reason']})" if row["drain_reason"] else ""
        yield warning("drain", f"New work is refused{why}.", "`paddock drain off` when the reason is gone.")
    else:
        yield ok("drain", "New work is accepted.")


async def _backlog(core: Core, config: Config) -> AsyncIterator[Finding]:
    row = await core.db.fetchrow(OLDEST_DUE)
    if row is None:
        yield ok("backlog", "Nothing waits that could run.")
    elif row["late"] > LATE:
        minutes = row["late"].total_seconds() / 60
        yield warning(
            "backlog",
            f"The oldest {row['name']} job has been due for {minutes:.0f} min.",
            f"`paddock jobs list --kind {row['name']} --status pending`, then `paddock why JOB`.",
        )
    else:
        yield ok("backlog", f"The oldest due job ({row['name']}) waits for {row['late'].total_seconds():.1f} s.")


async def _pressure(core: Core, config: Config) -> AsyncIterator[Finding]:
    row = await _row(core, PRESSURE)
    quiet = True
    if row["queue"] > FULL_QUEUE:
        quiet = False
        yield warning(
            "database load",
            f"PostgreSQL's notification queue is {100 * row['queue']:.0f} % full: some session listens and does not read.",
            "Find it: SELECT * FROM pg_stat_activity WHERE state = 'idle in transaction'.",
        )
    if row["connections"] > FULL_CONNECTIONS * row["most"]:
        quiet = False
        yield warning(
            "database load",
            f"{row['connections']} of {row['most']} connections are taken.",
            "Raise max_connections, or lower PADDOCK_DURABLE_POOL and PADDOCK_RELAXED_POOL.",
        )
    if row["oldest"] is not None and row["oldest"] > OLD_SNAPSHOT:
        quiet = False
        minutes = row["oldest"].total_seconds() / 60
        yield warning(
            "database load",
            f"A transaction has been open for {minutes:.0f} min: dead rows pile up behind it.",
            "Find it in pg_stat_activity (xact_start) and end it.",
        )
    if quiet:
        yield ok("database load", f"{row['connections']} of {row['most']} connections; no old transaction.")


async def _schedules(core: Core, config: Config) -> AsyncIterator[Finding]:
    rows = await core.db.fetch(PROBLEMS)
    for row in rows:
        told = f"{row['name']} could not make its job: {row['last_problem']}"
        yield warning("schedules", told, f"`paddock schedules list`; mend it, or disable it: {row['name']}.")
    if not rows:
        yield ok("schedules", "All of them make their jobs.")


CHECKS: Mapping[str, Check] = {
    "database": _database,
    "migrations": _migrations,
    "durability": _durability,
    "clock": _clock,
    "database load": _pressure,
    "object store": _object_store,
    "workers": _workers,
    "kinds": _kinds,
    "schedules": _schedules,
    "drain": _drain,
    "backlog": _backlog,
}


async def _row(core: Core, statement: Statement) -> asyncpg.Record:
    row = await core.db.fetchrow(statement)
    assert row is not None
    return row


def router() -> "APIRouter":
    """`GET /api/ops/doctor`, to be given to `create_app(routers=...)`; `access.ACCESS` names its roles."""
    from starlette.responses import Response

    import paddock
    from paddock.api.auth import Asking
    from paddock.api.documenting import documented
    from paddock.api.guard import guarded_router
    from paddock.api.pagination import answer
    from paddock.api.plane import ThePlane

    example = {
        "version": "0.1.0",
        "now": "2026-11-15T09:30:00Z",
        "findings": [asdict(ok("database", "PostgreSQL 18.1."))],
    }
    made = guarded_router("ops")

    async def examine(plane: ThePlane, caller: Asking) -> Response:
        findings = await server_checks(plane.core, plane.config)
        return answer(
            {
                "version": paddock.__version__,
                "now": datetime.now(UTC),
                "findings": [asdict(finding) for finding in findings],
            }
        )

    made.add_api_route(
        "/api/ops/doctor", examine, methods=["GET"], summary="Check everything", responses=documented(example)
    )
    return made
