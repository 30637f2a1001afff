"""The core's own housekeeping: internal kinds on schedules, run by a worker of their own inside `serve`.

Each pass is bounded: what is left over waits for the next one. Each step stands alone: one that fails is reported,
and by failing the job retried, after the others have had their turn.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta

import asyncpg
import structlog

from paddock.db.pool import Database, statements
from paddock.jobs import bulk, partitions, schedules
from paddock.jobs.core import Core
from paddock.jobs.figures.counting import refresh_figures
from paddock.jobs.kinds import Nothing, housekeeping
from paddock.jobs.logs import KEPT_BYTES
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.timelines import MOST_ENTRIES
from paddock.jobs.turn import Turn

SQL = statements("paddock.jobs.sql", "upkeep.sql")
log = structlog.get_logger()

AT_ONCE = 5_000
RUNS_KEPT = 200
KEYS_KEPT = timedelta(hours=24)
DEAD_SESSIONS_KEPT = timedelta(hours=1)
# Twice as long as a pass is apart, and some more: what grew since the last one is looked at.
GROWN_WITHIN = timedelta(minutes=15)
RECENT_ENTRIES = 20_000

Step = Callable[[Core, datetime], Awaitable[int]]


async def run_figures(turn: Turn[Nothing], core: Core) -> Outcome:
    """Counts what the charts of the dashboard show."""
    refreshed = await refresh_figures(core.db)
    return done({"counted_to": refreshed.counted_to.isoformat(), "kinds": refreshed.kinds_sampled})


async def run_upkeep(turn: Turn[Nothing], core: Core) -> Outcome:
    """Removes history, logs and timelines that are past their time, and makes the partitions of the next days."""
    return done(await keep_up(core))


async def keep_up(core: Core) -> Mapping[str, int]:
    """One pass. Returns how much each step did; a step whose lock was taken did nothing and comes again."""
    now = await core.db.fetchval(SQL["clock"])
    did: dict[str, int] = {}
    failed: list[Exception] = []
    for name, step in STEPS.items():
        try:
            did[name] = await step(core, now)
        except asyncpg.LockNotAvailableError:
            log.info("upkeep_step_waits", step=name)
        except Exception as problem:
            log.exception("upkeep_step_failed", step=name)
            failed.append(problem)
    if failed:
        raise failed[0]
    return did


async def _history_partitions(core: Core, now: datetime) -> int:
    return await partitions.make_ahead(core.db, partitions.HISTORY, now)


async def _tag_partitions(core: Core, now: datetime) -> int:
    return await partitions.make_ahead(core.db, partitions.TAGS, now)


async def _log_partitions(core: Core, now: datetime) -> int:
    return await partitions.make_ahead(core.db, partitions.LOGS, now)


async def _expired_history(core: Core, now: datetime) -> int:
    before = now - core.settings.history_kept
    dropped = await partitions.drop_expired(core.db, partitions.HISTORY, before)
    return dropped + await _deleted(core.db, "trim_default_history", before, AT_ONCE)


async def _expired_tags(core: Core, now: datetime) -> int:
    before = now - core.settings.history_kept
    dropped = await partitions.drop_expired(core.db, partitions.TAGS, before)
    return dropped + await _deleted(core.db, "trim_default_tags", before, AT_ONCE)


async def _expired_groups(core: Core, now: datetime) -> int:
    """A group goes after the last of its jobs: as long as one can be looked at, so can its group."""
    before = partitions.kept_from(partitions.HISTORY, now - core.settings.history_kept)
    return await _deleted(core.db, "expire_groups", before, AT_ONCE)


async def _expired_logs(core: Core, now: datetime) -> int:
    before = now - core.settings.logs_kept
    dropped = await partitions.drop_expired(core.db, partitions.LOGS, before)
    return dropped + await _deleted(core.db, "trim_default_logs", before, AT_ONCE)


async def _long_logs(core: Core, now: datetime) -> int:
    return await _deleted(core.db, "trim_logs", now - GROWN_WITHIN, KEPT_BYTES, AT_ONCE)


async def _housekeeping_runs(core: Core, now: datetime) -> int:
    return await _deleted(core.db, "trim_housekeeping", RUNS_KEPT, AT_ONCE)


async def _long_timelines(core: Core, now: datetime) -> int:
    return await _deleted(core.db, "trim_timeline", MOST_ENTRIES, RECENT_ENTRIES)


async def _group_hooks(core: Core, now: datetime) -> int:
    return await core.finish_group_hooks()


def _expire(statement: str, kept: Callable[[Core], timedelta]) -> Step:
    """Deletes what is older than `kept`, AT_ONCE rows at most."""

    async def step(core: Core, now: datetime) -> int:
        return await _deleted(core.db, statement, now - kept(core), AT_ONCE)

    return step


def _expire_small(statement: str) -> Step:
    """Deletes what has expired from a table that has few rows."""

    async def step(core: Core, now: datetime) -> int:
        return await _deleted(core.db, statement, now)

    return step


def _history_kept(core: Core) -> timedelta:
    return core.settings.history_kept


STEPS: Mapping[str, Step] = {
    "history_partitions": _history_partitions,
    "tag_partitions": _tag_partitions,
    "log_partitions": _log_partitions,
    "group_hooks": _group_hooks,
    "expired_history": _expired_history,
    "expired_tags": _expired_tags,
    "expired_groups": _expired_groups,
    "expired_logs": _expired_logs,
    "long_logs": _long_logs,
    "housekeeping_runs": _housekeeping_runs,
    "long_timelines": _long_timelines,
    "timeline": _expire("expire_timeline", _history_kept),
    "idempotency_keys": _expire("expire_keys", lambda core: KEYS_KEPT),
    "sessions": _expire("expire_sessions", lambda core: DEAD_SESSIONS_KEPT),
    "versions_at_work": _expire("expire_versions", lambda core: core.settings.audit_kept),
    "deliveries": _expire("expire_deliveries", _history_kept),
    "events": _expire("expire_events", _history_kept),
    "audit_log": _expire("expire_audit_log", lambda core: core.settings.audit_kept),
    "web_sessions": _expire_small("expire_web_sessions"),
    "sign_in_links": _expire_small("expire_sign_in_links"),
}


async def _deleted(db: Database, statement: str, *arguments: object) -> int:
    """How many rows a DELETE took, from its command tag."""
    return int((await db.execute(SQL[statement], *arguments)).rpartition(" ")[2])


FIGURES = housekeeping("figures", run_figures, timedelta(minutes=2))
UPKEEP = housekeeping("upkeep", run_upkeep, timedelta(minutes=10))
KINDS = (FIGURES, UPKEEP, bulk.BULK)


async def ensure_schedules(core: Core) -> None:
    """Called at every start of every replica that knows these kinds."""
    await schedules.ensure(core, "figures", FIGURES.name, timedelta(seconds=10))
    await schedules.ensure(core, "upkeep", UPKEEP.name, timedelta(minutes=5))
