"""The six background jobs, and what each start of the control plane does for them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import structlog

from paddock.background import (
    export_reconciliation,
    instance_orchestration,
    lifecycle,
    reconciliation,
    records,
    resource_monitor,
    schema_cache,
)
from paddock.background.passes import BackgroundJob, kind_of, logger_of
from paddock.config import Config
from paddock.jobs import schedules
from paddock.jobs.core import Core
from paddock.jobs.kinds import Kind
from paddock.pass_metrics import JOBS, pass_metrics

SHORTEST_SENSIBLE = timedelta(seconds=60)
COSTLY = ("reconciliation", "lifecycle")
log = structlog.get_logger()

DECLARED = (
    BackgroundJob(
        "schema_cache",
        schema_cache.run,
        "Reads the names of tables and columns of the engines, for browsing and search.",
        ("engines_refreshed", "tables_written", "tables_deleted"),
        timedelta(hours=6),
    ),
    BackgroundJob(
        "reconciliation",
        reconciliation.run,
        "Compares instances with what really runs: deletes what nobody owns, and ends what is gone.",
        (
            "orphaned_pods_detected",
            "orphaned_pods_cleaned",
            "missing_pods_handled",
            "status_drift_fixed",
        ),
        symptom="Many orphans",
    ),
    BackgroundJob(
        "instance_orchestration",
        instance_orchestration.run,
        "Moves instances on that wait for a snapshot which has ended.",
        ("instances_transitioned_to_starting", "instances_transitioned_to_failed"),
    ),
    BackgroundJob(
        "resource_monitor",
        resource_monitor.run,
        "Watches the memory of instances, and grows them where the runtime can.",
        ("proactive_resizes", "urgent_resizes"),
    ),
    BackgroundJob(
        "lifecycle",
        lifecycle.run,
        "Ends what is past its TTL, and instances that nobody uses.",
        (
            "instances_ended",
            "inactive_instances_ended",
            "snapshots_ended",
            "mappings_ended",
            "exports_ended",
            "dumps_ended",
        ),
        symptom="Expired instances stay",
    ),
    BackgroundJob(
        "export_reconciliation",
        export_reconciliation.run,
        "Settles snapshots that a crash left unsettled, and says when submitted exports are not polled.",
        ("snapshots_ready_to_finalize", "snapshots_finalized"),
        symptom="Snapshots are not finalized",
    ),
)
BY_NAME: Mapping[str, BackgroundJob] = {name: job for name in JOBS for job in DECLARED if job.name == name}


def internal_kinds(config: Config) -> Sequence[Kind]:
    return [kind_of(job, config) for job in BY_NAME.values()]


@asynccontextmanager
async def alongside(core: Core, config: Config) -> AsyncIterator[None]:
    """Around the life of a control plane; nothing is left to be done at its end."""
    await at_start(core, config)
    yield


async def at_start(core: Core, config: Config) -> None:
    """Rows and schedules are made here and not by a migration: an interval is a setting, and the last to start wins."""
    pass_metrics()
    log.info("scheduler_starting", jobs=len(BY_NAME))
    for job in BY_NAME.values():
        every = job.every(config)
        async with core.db.transaction() as tx:
            await tx.execute(records.SQL["ensure_job"], job.name)
        await schedules.ensure(core, job.name, job.name, every)
        its_log = logger_of(job.name)
        its_log.info("job_registered", interval=int(every.total_seconds()))
        if job.name in COSTLY and every < SHORTEST_SENSIBLE:
            its_log.warning(
                "job_interval_short",
                interval=int(every.total_seconds()),
                doing="60 s or more is enough; start with 300 s and watch how late things are found",
            )
