"""Whether work is accepted, and somebody does it."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from paddock.config import Config
from paddock.db.pool import Statement
from paddock.doctor.findings import Finding, broken, ok, warning
from paddock.doctor.on_database import row_of
from paddock.jobs import reading
from paddock.jobs.core import Core

LATE = timedelta(minutes=5)
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


async def workers(core: Core, config: Config) -> AsyncIterator[Finding]:
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


async def kinds(core: Core, config: Config) -> AsyncIterator[Finding]:
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


async def drain(core: Core, config: Config) -> AsyncIterator[Finding]:
    row = await row_of(core, SERVICE)
    if row["drained"]:
        why = f" ({row['drain_reason']})" if row["drain_reason"] else ""
        yield warning("drain", f"New work is refused{why}.", "`paddock drain off` when the reason is gone.")
    else:
        yield ok("drain", "New work is accepted.")


async def backlog(core: Core, config: Config) -> AsyncIterator[Finding]:
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


async def schedules(core: Core, config: Config) -> AsyncIterator[Finding]:
    rows = await core.db.fetch(PROBLEMS)
    for row in rows:
        told = f"{row['name']} could not make its job: {row['last_problem']}"
        yield warning("schedules", told, f"`paddock schedules list`; mend it, or disable it: {row['name']}.")
    if not rows:
        yield ok("schedules", "All of them make their jobs.")
