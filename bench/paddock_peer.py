"""Ours, put to the same questions. Everything a benchmark needs of the product is in this file and nowhere else.

Each function raises NotImplementedError until it can be answered; the benchmarks then publish the floor and the peers
and leave our rows open. All of them start from an empty database and run ours as its users do: auth, history, metrics
and timeline on, workers over HTTP, no database credentials in the worker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from bench.contenders import Churn, Drained, Load, Trickle
from bench.environment import Database, Env
from bench.stale_observation import Observation


async def drain(env: Env, database: Database, load: Load) -> Drained:
    """One `paddock serve` on `database.dsn` and one worker: `load.jobs` no-op jobs, claimed and finished
    `load.batch` at a time with `load.in_flight` batches under way.

    Migrate, start serve, pause the kind, enqueue everything (`load.payload_bytes` each), ANALYZE, start the worker
    and wait for its session; then, inside `env.measure([serve pid, worker pid])`, resume the kind and wait until all
    are finished. `seconds` runs from the resume to the last accepted finish (history's newest `completed_at` tells
    it to the microsecond, polling does not). Check that every job completed exactly once.
    """
    raise NotImplementedError


async def latency(env: Env, database: Database, trickle: Trickle) -> list[float]:
    """Seconds from the call that enqueues (POST /api/jobs on a warm connection) to the first line of the handler, one
    value per sample, an idle worker waiting in a long poll.

    Use `contenders.trickled` to enqueue and `contenders.waits` to join: the handler notes `time.monotonic_ns()` with
    the payload's `sequence`, and the worker process hands the notes over at the end.
    """
    raise NotImplementedError


def churn(env: Env, database: Database, load: Load) -> AbstractAsyncContextManager[Churn]:
    """serve and one worker, warm, through which `Churn.run(jobs)` sends slice after slice: enqueue in bulk, return when
    the last is finished. `control_pids` is serve, `worker_pids` the worker; children are found by the meter."""
    raise NotImplementedError


async def seed_finished(database: Database, jobs: int) -> None:
    """Puts that many finished jobs into the migrated database by plain SQL (COPY into the history partitions), spread
    over kinds, statuses, owners and the last days as in life; then ANALYZE. Called inside an open `churn` or before
    `named_queries`, so it must not need an empty database."""
    raise NotImplementedError


class EnqueueTarget(Protocol):
    @property
    def control_pids(self) -> tuple[int, ...]: ...

    async def enqueue(self, client: int) -> None:
        """One POST of one job, on the connection of that client; raises unless it was accepted."""
        ...


def enqueue_target(
    env: Env, database: Database, *, clients: int, bare: bool
) -> AbstractAsyncContextManager[EnqueueTarget]:
    """serve without a worker, with `clients` warm keep-alive connections. `bare` runs the same routes, auth and
    validation with the notifier and the idempotency keys switched off; otherwise each request carries a fresh key."""
    raise NotImplementedError


class Beating(Protocol):
    @property
    def control_pids(self) -> tuple[int, ...]: ...

    async def cycle(self) -> None:
        """One beat of every worker's session, each listing all the attempts it holds; checks that all are its own."""
        ...

    async def session_table_bytes(self) -> int:
        """`pg_total_relation_size` of the table of sessions."""
        ...


def beating(env: Env, database: Database, *, jobs: int, workers: int) -> AbstractAsyncContextManager[Beating]:
    """serve, and `workers` sessions spoken for over HTTP from this process, which have claimed `jobs` jobs in all."""
    raise NotImplementedError


Query = Callable[[], Awaitable[object]]


def named_queries(env: Env, database: Database, *, jobs: int) -> AbstractAsyncContextManager[Mapping[str, Query]]:
    """Twelve requests by name (filtered pages, counts, what an overview page needs) on one warm client, over a database
    with `jobs` jobs in it (`seed_finished` for most, some hundreds pending and running)."""
    raise NotImplementedError


async def stale_writer(env: Env, database: Database) -> Observation:
    """The story of `stale_writer.py` with our own processes: worker A is frozen with SIGSTOP, its session dies, the
    rescuer gives the job to B, B is frozen, A thaws, beats and finishes late; then B finishes."""
    raise NotImplementedError
