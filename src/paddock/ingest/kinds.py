"""The kinds of ingest: one for each step, chained by the events that their ends make.

Loaded by the control plane and by every runner of a worker, so nothing heavy is imported here.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from paddock.config import Config
from paddock.ingest import handler
from paddock.ingest.checking import CHECK
from paddock.ingest.model import BatchPayload, FetchPayload, StepPayload
from paddock.ingest.resources import cores
from paddock.ingest.settings import IngestSettings
from paddock.jobs.kinds import Backoff, Kind

if TYPE_CHECKING:
    from paddock.db.pool import Transaction
    from paddock.jobs.kinds import Made
    from paddock.jobs.model import Event, Group, Job, NewJob

RETRY = Backoff(first=timedelta(seconds=60), cap=timedelta(minutes=5), limit=5, cluster_limit=50)
LONGEST = timedelta(days=2)


class _Step(NamedTuple):
    name: str
    payload: type[StepPayload]
    run: Callable[..., Awaitable[object]]
    # What `pipeline` does at its end, what it hears, and what makes the delivery of that.
    end: str
    hears: str
    make: str
    cleanup: Callable[..., Awaitable[object]] | None = None


FETCH = ("fetched", "NextBatchRequested", "fetch_for")
HOOKS = ("hooked", "IngesterBatchReady", "hooks_for")
PUBLISH = ("published", "HookBatchCompleted", "publish_for")
HERE = (
    _Step("run_ingester", FetchPayload, handler.run_ingester, *FETCH),
    _Step("run_hooks", BatchPayload, handler.run_hooks, *HOOKS),
    # Wherever the others ran: it reads and writes the store alone.
    _Step("publish_batch", BatchPayload, handler.publish_batch, *PUBLISH),
)
THERE = (
    _Step("run_ingester:kubernetes", FetchPayload, handler.run_ingester_on_cluster, *FETCH, handler.clean_fetch),
    _Step("run_hooks:kubernetes", BatchPayload, handler.run_hooks_on_cluster, *HOOKS, handler.clean_hooks),
)


def step_kinds(config: Config) -> Sequence[Kind]:
    from paddock.ingest.source_settings import sources_from

    sources_from(config)  # a bad entry stops the start
    bound = config.of(IngestSettings).waiting_bytes
    here = [_kind(step, config, bound, "local") for step in HERE]
    return (*here, *(_kind(step, config, bound, "kubernetes") for step in THERE), CHECK)


def out_of_reach(config: Config) -> set[str]:
    """A worker offers steps on a cluster only where some source runs there, and it finds the cluster."""
    from paddock.ingest.source_settings import runtime_of, sources_from

    if any(runtime_of(config, source) == "kubernetes" for source in sources_from(config).values()):
        from paddock.config import ConfigError
        from paddock.ingest.source_settings import setting_of_runtime
        from paddock.runtimes.kubernetes.access import find_access

        with suppress(ConfigError):
            find_access(os.environ, setting_of_runtime(config, "kubernetes_context"))
            return set()
    return {step.name for step in THERE}


def _kind(step: _Step, config: Config, waiting_bytes: int, runtime: str) -> Kind:
    async def ended(tx: "Transaction", job: "Job") -> "Made":
        from paddock.ingest import pipeline

        if job.cleanup_of is not None:
            return []
        made: Made = await getattr(pipeline, step.end)(tx, job, waiting_bytes)
        return made

    async def hear(tx: "Transaction", event: "Event") -> "NewJob | None":
        from paddock.ingest import pipeline

        made: NewJob | None = await getattr(pipeline, step.make)(tx, event, runtime)
        return made

    async def fetch_secrets(tx: "Transaction", payload: FetchPayload) -> Mapping[str, str]:
        found = {**await _session(tx, payload), **await _of_containers(tx, payload, "fetch")}
        return {**found, **_missing_catalog(config, payload.source)}

    fetches, local = step.payload is FetchPayload, runtime == "local"
    return Kind(
        name=step.name,
        payload=step.payload,
        handler=step.run,
        about=lambda payload: f"{payload.source}, batch {payload.batch}",
        cleanup=step.cleanup,
        retry=RETRY,
        turn_timeout=LONGEST,
        concurrency=cores() if local else None,
        secrets=(_session if fetches else None) if local else (fetch_secrets if fetches else _hooks_secrets),
        on_end=ended,
        on_group_end=_run_ended if fetches and local else None,
        end_events=END_EVENTS,
        hears={step.hears: hear},
    )


END_EVENTS = {
    "IngestRunStarted": "A run of a source began",
    "NextBatchRequested": "A run wants its next batch",
    "IngesterBatchReady": "A batch of records was fetched",
    "HookBatchCompleted": "All hooks of a batch ended",
    "IngestBatchPublished": "A batch was published",
    "IngestRunCompleted": "A run of a source completed",
    "IngestRunFailed": "A run of a source failed",
    "IngestRunCancelled": "A run of a source was cancelled",
}


async def _session(tx: "Transaction", payload: FetchPayload) -> Mapping[str, str]:
    """Where the fetch goes on. It may hold anything, so it travels as secrets do and is shown nowhere."""
    from paddock.ingest.pipeline import SQL

    run = await tx.fetchrow(SQL["read_run"], UUID(payload.run_id))
    return {} if run is None or run["session"] is None else {"session": run["session"]}


def _missing_catalog(config: Config, name: str) -> Mapping[str, str]:
    """The control plane gives it to the containers; a worker that is told says so once, instead of starting them in vain."""
    from paddock.ingest.source_settings import sources_from
    from paddock.ingest.transfer_files import CATALOG_MISSING

    source = sources_from(config).get(name)
    if source is None or source.catalog is None or os.access(source.catalog, os.R_OK):
        return {}
    return {CATALOG_MISSING: str(source.catalog)}


async def _hooks_secrets(tx: "Transaction", payload: BatchPayload) -> Mapping[str, str]:
    return await _of_containers(tx, payload, "hooks")


async def _of_containers(tx: "Transaction", payload: StepPayload, step: str) -> Mapping[str, str]:
    """The token of this step, and the id that all objects of this installation carry: a worker has no database."""
    from paddock.ingest.pipeline import SQL
    from paddock.ingest.transfer_files import token_of
    from paddock.runtimes.kubernetes.installation import mismatches

    run = await tx.fetchrow(SQL["read_run"], UUID(payload.run_id))
    cluster = await tx.fetchval(SQL["cluster"])
    # A database that was restored or cloned has the id that another's Jobs carry: nobody touches them.
    found = {} if cluster is None or mismatches() else {"installation": str(cluster)}
    if run is not None and run["transfer_key"] is not None:
        found["transfer_token"] = token_of(run["transfer_key"], payload.run_id, payload.batch, step)
    return found


async def _run_ended(tx: "Transaction", group: "Group") -> "Made":
    from paddock.ingest import pipeline

    return await pipeline.run_ended(tx, group)


def internal_kinds(_config: Config) -> Sequence[Kind]:
    from paddock.ingest import removing, scheduled

    return (removing.REMOVE, scheduled.SCHEDULED)
