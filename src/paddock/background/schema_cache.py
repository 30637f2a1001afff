"""`schema_cache`: for each engine that may be cached and is due, a worker reads its names, and the pass merges what it wrote.

All readings are ordered first and merged in the order in which they end: one engine that takes hours keeps no other waiting.
Killed at any point the pass goes on: the metadata jobs are found by what was saved or by their locks, an engine that ended is not
begun again, and a page that is merged twice changes nothing.
"""

import asyncio
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

from paddock.background.settings import BackgroundSettings
from paddock.background.ticks import GiveBack, Tick
from paddock.engines.registry import settings_from
from paddock.engines.settings import EngineSettings
from paddock.exports.schema import merging
from paddock.exports.schema.merging import SQL, ReadAs
from paddock.exports.schema.service import cached_engines, is_as_configured, read_as, why_not_cached
from paddock.jobs import reading
from paddock.jobs.errors import LockHeld, StaleAttempt
from paddock.jobs.model import Job, JobId, NewJob
from paddock.jobs.waiting import until_ended
from paddock.pass_metrics import pass_metrics
from paddock.stopping import cancel
from paddock.storage.store import open_managed

READING = "metadata"
# A reading that no worker took within this time, while none of the others was at work, is given up.
CLAIMED_WITHIN = 600.0
LOOK_EVERY = 30.0
# Where no worker lives the next pass comes sooner, after twice the time before it at each: workers mostly start a moment after
# the first control plane.
FIRST_LOOK_FOR_WORKERS, LONGEST_LOOK_FOR_WORKERS = timedelta(seconds=5), timedelta(hours=1)
NO_WORKER = "no_worker", "No live worker could read it: start one (`paddock worker`)."
# Of the notes: how many passes in a row found no worker.
WITHOUT_WORKER = "passes_without_worker"


class RefreshFailed(Exception):
    """A sentence that names the engines; the next pass tries only those again."""


async def run(tick: Tick) -> None:
    known = settings_from(tick.config)
    deleted = await merging.drop_gone_engines(tick.core.db, list(known))
    _count_deleted(tick, deleted)
    before = int(tick.notes.pop(WITHOUT_WORKER, 0))
    refresh = Refresh(tick)
    cached = await cached_engines(tick.core.db)
    due = {
        name: settings
        for name, settings in sorted(known.items())
        if tick.engine in (None, name) and name not in refresh.ended and _is_due(tick, cached.get(name), settings)
    }
    await refresh.run({name: settings for name, settings in due.items() if not await refresh.skips(name, settings)})
    if WITHOUT_WORKER in tick.notes:
        tick.notes[WITHOUT_WORKER] = before + 1
        tick.again_in = min(FIRST_LOOK_FOR_WORKERS * 2 ** min(before, 10), LONGEST_LOOK_FOR_WORKERS)
    if failed := [name for name, succeeded in sorted(refresh.ended.items()) if not succeeded]:
        raise RefreshFailed(f"Could not be read: {', '.join(failed)}.")


def _is_due(tick: Tick, row: asyncpg.Record | None, settings: EngineSettings) -> bool:
    """From begin to begin, and half an interval is enough: a pass that is due comes some moments sooner or later after the one
    before it, and what was read by a pass that failed for another engine is younger than that."""
    if tick.by_hand or row is None or row["refreshed_at"] is None or not is_as_configured(row, settings):
        return True
    every = tick.config.of(BackgroundSettings).every("schema_cache")
    return bool(tick.now - (row["began_at"] or row["refreshed_at"]) >= every / 2)


class Refresh:
    """The engines of one pass. What is saved: the metadata job of each, which have ended and whether they succeeded, and the
    page that is merged next, of which reading."""

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self.ended: dict[str, bool] = dict(tick.saved.get("ended", {}))
        self._jobs: dict[str, str] = dict(tick.saved.get("jobs", {}))
        self._merging: dict[str, Any] = dict(tick.saved.get("merging", {}))
        self._saving = asyncio.Lock()
        # Readings that a worker has, and when one of them last began or ended.
        self._at_work: set[str] = set()
        self._moved_at = time.monotonic()

    async def run(self, engines: Mapping[str, EngineSettings]) -> None:
        readings = {
            asyncio.create_task(self._read(name, read_as(settings))): name for name, settings in engines.items()
        }
        waiting = set(readings)
        try:
            while waiting:
                over, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(over, key=lambda task: readings[task]):
                    await self._end(readings[task], read_as(engines[readings[task]]), task)
        finally:
            await cancel(*readings)

    async def skips(self, name: str, settings: EngineSettings) -> bool:
        tick = self._tick
        why = why_not_cached(tick.config, settings)
        if why is None and await self._nobody_reads(name):
            why = NO_WORKER
            tick.notes[WITHOUT_WORKER] = 1
        if why is None:
            return False
        tick.log.info("schema_cache_refresh_skipped", engine=name, reason=why[0], note=why[1])
        pass_metrics().schema_refreshes("skipped").inc()
        tick.count("engines_skipped")
        await self._note(name, "skipped", why[1])
        return True

    async def _nobody_reads(self, name: str) -> bool:
        """No worker lives that could, and none comes by itself. A reading that this pass began before goes on: it may be over."""
        if name in self._jobs:
            return False
        return any(kind.name == READING and kind.unoffered for kind in await reading.kinds(self._tick.core.db))

    async def _end(self, name: str, read_as: ReadAs, task: "asyncio.Task[Job]") -> None:
        tick, metrics = self._tick, pass_metrics()
        try:
            job = task.result()
            began = time.monotonic()
            await self._merge(name, read_as, job)
        except (GiveBack, StaleAttempt):
            raise
        except Exception as problem:  # one engine's trouble is not the others'
            tick.log.warning("schema_cache_refresh_failed", engine=name, error=f"{type(problem).__name__}: {problem}")
            metrics.schema_refreshes("failed").inc()
            await self._note(name, "failed", str(problem)[:500])
            self.ended[name] = False
        else:
            metrics.schema_refreshes("success").inc()
            metrics.schema_refresh_seconds.observe(job.run_seconds + time.monotonic() - began)
            tick.count("engines_refreshed")
            await self._note(name, "success", None)
            self.ended[name] = True
        await self._save()

    async def _note(self, name: str, status: str, note: str | None) -> None:
        async with self._tick.core.db.transaction() as tx:
            await tx.execute(SQL["engine_ended"], name, status, note, self._tick.now)

    async def _save(self) -> None:
        """Readings begin at the same time: each save holds what all of them have come to."""
        async with self._saving:
            self._tick.saved = {"jobs": {**self._jobs}, "ended": {**self.ended}, "merging": {**self._merging}}
            await self._tick.save(self._tick.saved)

    async def _merge(self, name: str, read_as: ReadAs, job: Job) -> None:
        tick = self._tick
        db, store = tick.core.db, open_managed(tick.config)
        prefix, pages = str(job.result["prefix"]), int(job.result["pages"])
        dropped = await merging.begin(db, name, read_as, tick.still_ours)
        _count_deleted(tick, dropped or 0)
        goes_on = dropped is None and self._merging.get("job") == str(job.id)
        for page in range(int(self._merging["page"]) if goes_on else 0, pages):
            merged = await merging.merge_page(db, store, name, job.id, f"{prefix}/{page:06}.json", tick.still_ours)
            tick.count("tables_written", merged.written)
            tick.count("schemas_failed", merged.failed_schemas)
            _count_deleted(tick, merged.deleted)
            self._merging = {"job": str(job.id), "page": page + 1}
            await self._save()
            if tick.core.claims.closing.is_set():
                raise GiveBack
        _count_deleted(tick, await merging.drop_gone_schemas(db, name, job.id, tick.still_ours))
        await store.delete_below(prefix)

    async def _read(self, name: str, read_as: ReadAs) -> Job:
        """The reading, ended. One that a pass before this one began is gone on with."""
        core, budget = self._tick.core, self._tick.budget
        job = await self._begun(name, read_as)
        while not job.ended and not budget.over:
            if job.started_at is not None:
                self._begins(name)
            elif self._nobody_comes():
                await core.cancel([job.id], actor="paddock", reason="no worker took it")
                raise RefreshFailed("No worker took the reading within 10 minutes.")
            job = await self._looked_at(job)
        self._ends(name)
        if not job.ended:
            raise RefreshFailed("The reading did not end in time.")
        if job.status != "completed":
            raise RefreshFailed(job.error_message or f"The reading was {job.status}.")
        return job

    def _begins(self, name: str) -> None:
        if name not in self._at_work:
            self._at_work.add(name)
            self._moved_at = time.monotonic()

    def _ends(self, name: str) -> None:
        self._at_work.discard(name)
        self._moved_at = time.monotonic()

    def _nobody_comes(self) -> bool:
        """One that waits for the others to end has a worker that is busy with them."""
        return not self._at_work and time.monotonic() - self._moved_at > CLAIMED_WITHIN

    async def _looked_at(self, job: Job) -> Job:
        core = self._tick.core
        job = await until_ended(core, job, min(LOOK_EVERY, max(0.0, self._tick.budget.left)))
        if core.claims.closing.is_set():
            raise GiveBack
        return job

    async def _begun(self, name: str, read_as: ReadAs) -> Job:
        """A reading of the engine as it is configured. One that is still at work under other settings is stopped first: its names
        are not for those who may see this one's. A cleanup that holds the lock reads nothing, and is waited for."""
        core = self._tick.core
        saved = self._jobs.get(name)
        job = None if saved is None else await core.job(JobId(UUID(saved)))
        while job is None or job.cleanup_of is not None or _read_as(job) != read_as:
            if job is not None and not job.ended:
                if job.cleanup_of is None:
                    await core.cancel([job.id], actor="paddock", reason="the engine's settings have changed since")
                job = await self._looked_at(job)
                if self._tick.budget.over:
                    what = "reading under earlier settings" if job.cleanup_of is None else "cleanup of a reading"
                    raise RefreshFailed(f"A {what} did not end in time.")
                continue
            job = await core.job(await self._ordered(name, read_as))
        if self._jobs.get(name) != str(job.id):
            self._jobs[name] = str(job.id)
            await self._save()
        return job

    async def _ordered(self, name: str, read_as: ReadAs) -> JobId:
        new = NewJob(READING, {"engine": name, "skip": list(read_as.skip)}, role=read_as.role)
        try:
            async with self._tick.core.db.transaction() as tx:
                [id] = await self._tick.core.enqueue(tx, [new])
        except LockHeld as held:
            if held.holder is None:
                raise
            return held.holder
        return id


def _read_as(job: Job) -> ReadAs:
    return ReadAs.of(job.role, job.payload.get("skip", ()))


def _count_deleted(tick: Tick, n: int) -> None:
    tick.count("tables_deleted", n)
    pass_metrics().schema_deleted.inc(n)
