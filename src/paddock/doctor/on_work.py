"""Whether work is accepted, and somebody does it."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from paddock import capability
from paddock.amounts import several
from paddock.config import Config
from paddock.db.pool import Statement
from paddock.doctor.findings import Finding, broken, ok, warning
from paddock.doctor.on_database import row_of
from paddock.jobs import reading
from paddock.jobs.core import Core
from paddock.jobs.model import Ordered
from paddock.jobs.schedule_runs import failed_schedules
from paddock.worker.resources import from_entry_points

LATE = timedelta(minutes=5)
OLDEST_DUE = Statement(
    "doctor_oldest_due",
    "SELECT k.name, d.due_at, paddock_now() - d.due_at AS late FROM kinds k CROSS JOIN LATERAL "
    "(SELECT min(j.due_at) AS due_at FROM jobs j WHERE j.kind = k.name AND j.attempt_id IS NULL) d "
    "WHERE d.due_at <= paddock_now() AND NOT k.paused ORDER BY d.due_at LIMIT 1",
    "durable",
)
HOOKS_OF_NOBODY = Statement(
    "doctor_hooks_of_nobody",
    "SELECT kind, count(*) AS groups FROM groups WHERE hook_due AND kind <> ALL ($1::text[]) GROUP BY kind ORDER BY kind",
    "durable",
)
SERVICE = Statement("doctor_service", "SELECT drained, drain_reason FROM service", "durable")


async def workers(core: Core, config: Config) -> AsyncIterator[Finding]:
    import paddock

    live = [worker for worker in await reading.workers(core.db) if worker.live]
    outside = [worker for worker in live if not _inside(core, worker.kinds)]
    if not outside:
        scaled = [kind for kind in await reading.kinds(core.db) if kind.scaled]
        if scaled and not any(kind.unoffered for kind in scaled):
            yield ok("workers", f"None runs now; a scaler brings them for {', '.join(kind.name for kind in scaled)}.")
        else:
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
    in_vain = [kind.name for kind in kinds if kind.kept_waiting and kind.unoffered]
    if in_vain:
        yield broken(
            "kinds",
            f"Jobs of {', '.join(in_vain)} have been due for over 2 min, and the scaler brought no worker.",
            "Look at its ScaledObject or ScaledJob (`kubectl describe`), at the pods it made, and at the log of KEDA.",
        )
    unoffered = [
        kind.name for kind in kinds if kind.unoffered and not kind.scaled and (kind.name in core.kinds or kind.pending)
    ]
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
    for entry_point, why in core.kinds.broken.items():
        yield broken(
            "kinds",
            f"The kinds of the entry point '{entry_point}' are missing: {why}",
            "Repair or remove its package, then start `paddock serve` again; jobs of its kinds wait.",
        )
    for name, why in capability.broken().items():
        yield broken(
            "kinds",
            f"The capability '{name}' is missing: {why}",
            "Repair or remove its package, then start `paddock serve` again; jobs of its kinds wait.",
        )
    _, broken_resources = from_entry_points()
    for entry_point, why in broken_resources.items():
        yield warning(
            "kinds",
            f"The resources of the entry point '{entry_point}' cannot be loaded here: {why}",
            "Workers with the same packages lack them too: repair or remove its package, then start them again.",
        )
    hooks_of_nobody = await core.db.fetch(HOOKS_OF_NOBODY, [kind.name for kind in core.kinds])
    for row in hooks_of_nobody:
        yield warning(
            "kinds",
            f"{several(row['groups'], 'group')} of '{row['kind']}' ended, and what follows waits: no kind has that name here.",
            "Install the package that has it, or finish the upgrade; if it was removed for good, nothing comes of them.",
        )
    scaled_too = " or scaled" if any(kind.scaled for kind in kinds) else ""
    problems = in_vain or unoffered or core.kinds.broken or capability.broken() or broken_resources or hooks_of_nobody
    if not problems and not any(kind.paused for kind in kinds):
        yield ok("kinds", f"{len(kinds)} kinds, all offered{scaled_too}, none paused.")


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
    failed = await failed_schedules(core.db, core.kinds)
    for schedule in failed:
        run = schedule.run
        last = None if run is None else run.outcome
        if run is None or last is None:
            told, look = f"{schedule.name} could not make its job: {schedule.problem}", "`paddock schedules list`"
        else:
            what = "job" if run.made is None else run.made[0]
            told = f"The last {what} of {schedule.name} failed: {schedule.problem}"
            look = f"`{last.command}`" if isinstance(last, Ordered) else f"`paddock why {last.id}`"
        yield warning("schedules", told, f"{look}; mend it, or `paddock schedules disable {schedule.name}`.")
    if not failed:
        yield ok("schedules", "All of them make their jobs, and what they last made did not fail.")
