"""Who watches jobs, and what they are told.

A watcher gets each changed job's current state: read after the change, so it may have merged several but is never
stale. All reading and telling of one channel happens under its lock, a watcher's catching up too; otherwise a state
read before could be sent after a newer one. Jobs are read once and encoded once for all who watch the same.

What cannot be told is said: `reset`, load again.
"""

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, fields
from uuid import UUID

import structlog

from paddock.api.errors import ApiError
from paddock.api.job_json import brief_job_json, some_job_json
from paddock.api.pagination import encode
from paddock.api.places import Places
from paddock.api.tokens import Caller
from paddock.jobs import reading
from paddock.jobs.changes import Changed
from paddock.jobs.core import Core
from paddock.jobs.model import Job, JobId
from paddock.jobs.reading import Placed
from paddock.metrics import Metrics

STATES_SECONDS = 0.05
BATCH_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 5.0
MOST_IN_BATCH = 500
# So many changed jobs are not worth reading: whoever watches all of them loads its page again. Each counts their own:
# what others do must neither cost nor tell an owner anything.
MOST_READ = 2_000
READ_AT_ONCE = 500
# Fields that can be told without reading the whole of a job.
LITTLE = frozenset(one.name for one in fields(Placed))
# What may wait for a slow watcher before it is dropped.
MOST_WAITING = 1_000
MOST_WAITING_BYTES = 4 * 1024 * 1024
RETRY_AFTER_SECONDS = 10

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Watch:
    """What somebody watches. Equal watches are told the same bytes."""

    owner: str | None = None
    kind: str | None = None
    group: UUID | None = None
    job: UUID | None = None
    # What of each job is told; None: all that lists show.
    fields: frozenset[str] | None = None

    @property
    def everything(self) -> bool:
        return self.owner is None and self.kind is None and self.group is None and self.job is None

    def wants(self, job: Job | Placed, housekeeping: Collection[str]) -> bool:
        return (
            (self.owner is None or job.owner == self.owner)
            and (self.kind is None or job.kind == self.kind)
            and (self.group is None or job.group_id == self.group)
            and (self.job is None or job.id == self.job)
            and (self.kind is not None or self.job is not None or job.kind not in housekeeping)
        )


@dataclass(eq=False)
class Watcher:
    watch: Watch
    token_id: UUID
    waiting: deque[bytes] = field(default_factory=deque)
    waiting_bytes: int = 0
    stirred: asyncio.Event = field(default_factory=asyncio.Event)
    # Set when nothing more will come: dropped for slowness, or the process stops.
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, message: bytes, reset: bytes) -> None:
        if self.ended.is_set():
            return
        self.waiting.append(message)
        self.waiting_bytes += len(message)
        if len(self.waiting) > MOST_WAITING or self.waiting_bytes > MOST_WAITING_BYTES:
            self.waiting.clear()
            self.waiting.append(reset)
            self.end()
        self.stirred.set()

    def end(self) -> None:
        self.ended.set()
        self.stirred.set()

    def take(self) -> bytes:
        content = b"".join(self.waiting)
        self.waiting.clear()
        self.waiting_bytes = 0
        self.stirred.clear()
        return content


@dataclass(eq=False)
class _Channel:
    batch: bool
    seconds: float
    watchers: set[Watcher] = field(default_factory=set)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Where the last telling ended. Within a telling only the last message may carry its new place: whoever is cut off
    # in the middle must get the rest again.
    place: str = ""
    task: asyncio.Task[None] | None = None


class Hub:
    def __init__(self, core: Core, metrics: Metrics, most_per_token: int) -> None:
        self._core = core
        self.places = Places(core.changes)
        self._metrics = metrics
        self._most = most_per_token
        self._open: Counter[UUID] = Counter()
        self._channels = (_Channel(False, STATES_SECONDS), _Channel(True, BATCH_SECONDS))
        self._housekeeping = frozenset(kind.name for kind in core.kinds if kind.housekeeping)
        self._closed = False

    async def enter(self, caller: Caller, watch: Watch, *, batch: bool, last_event_id: str | None) -> Watcher:
        if self._open[caller.token_id] >= self._most:
            raise ApiError(
                429,
                "too_many_streams",
                f"This token has {self._most} streams open already.",
                hint="Close one, or watch several jobs with one stream.",
                headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
            )
        self._open[caller.token_id] += 1
        self._metrics.streams.inc()
        watcher = Watcher(watch, caller.token_id)
        try:
            await self._catch_up(self._channels[batch], watcher, last_event_id)
        except BaseException:
            self.leave(watcher)
            raise
        if self._closed:
            watcher.end()
        return watcher

    @property
    def pages(self) -> int:
        """How many watch more than one job with a batched stream, as an open page of the dashboard does."""
        return sum(watcher.watch.job is None for watcher in self._channels[True].watchers)

    def leave(self, watcher: Watcher) -> None:
        for channel in self._channels:
            channel.watchers.discard(watcher)
            if not channel.watchers and channel.task is not None:
                channel.task.cancel()
                channel.task = None
        self._metrics.streams.dec()
        self._open[watcher.token_id] -= 1
        if self._open[watcher.token_id] <= 0:
            del self._open[watcher.token_id]

    def close(self) -> None:
        self._closed = True
        for channel in self._channels:
            for watcher in channel.watchers:
                watcher.end()

    async def _catch_up(self, channel: _Channel, watcher: Watcher, last_event_id: str | None) -> None:
        async with channel.lock:
            channel.watchers.add(watcher)
            if channel.task is None:
                subscribed = asyncio.Event()
                channel.task = asyncio.create_task(self._pump(channel, subscribed), name="stream")
                # What changes from here on the pump will tell, once the lock is free.
                await subscribed.wait()
            place = self.places.now()
            reset = _reset(place)
            watcher.offer(b"retry: 2000\n\n", reset)
            if last_event_id is None:
                watcher.offer(_tick(place), reset)
                return
            missed = self.places.since(last_event_id)
            jobs = None if missed is None else await self._read_missed(watcher.watch, missed)
            encoded = [_encoded(job, watcher.watch.fields) for job in jobs or ()]
            message = None if jobs is None else _message(channel.batch, encoded, last_event_id, place)
            watcher.offer(reset if message is None else message or _tick(place), reset)

    async def _read_missed(self, watch: Watch, missed: frozenset[JobId]) -> list[Job | Placed] | None:
        ids, lost = await self._worth_reading({watch}, missed)
        if lost:
            return None
        return [job for job in await self._read(ids, {watch}) if watch.wants(job, self._housekeeping)]

    async def _worth_reading(
        self, watches: Collection[Watch], changed: frozenset[JobId]
    ) -> tuple[Collection[JobId], Collection[Watch]]:
        """The changed jobs to read, and who is to load again instead. In a storm what a job is about is looked up first:
        it is read only if somebody wants it who does not want too many."""
        named = changed & {JobId(watch.job) for watch in watches if watch.job is not None}
        several = [watch for watch in watches if watch.job is None]
        if len(changed) <= MOST_READ or not several:
            return (changed if several else named), ()
        lost = {watch for watch in several if watch.everything}
        narrow = [watch for watch in several if not watch.everything]
        wanted = set(named)
        for watch, own in zip(narrow, await self._sorted_out(narrow, changed), strict=True):
            if len(own) > MOST_READ:
                lost.add(watch)
            else:
                wanted.update(own)
        return wanted, lost

    async def _sorted_out(self, watches: Sequence[Watch], changed: frozenset[JobId]) -> list[list[JobId]]:
        """Which of the changed jobs each wants."""
        if not watches:
            return []
        by_owner: defaultdict[str | None, list[Placed]] = defaultdict(list)
        for job in await reading.placed_of(
            self._core.db,
            sorted(changed),
            owners=[watch.owner for watch in watches if watch.owner is not None],
            kinds=[watch.kind for watch in watches if watch.owner is None and watch.kind is not None],
            groups=[watch.group for watch in watches if watch.owner is None and watch.group is not None],
        ):
            by_owner[job.owner].append(job)
            by_owner[None].append(job)
        return [[job.id for job in by_owner[watch.owner] if watch.wants(job, self._housekeeping)] for watch in watches]

    async def _read(self, ids: Collection[JobId], watches: Collection[Watch]) -> Sequence[Job | Placed]:
        found: list[Job | Placed] = []
        listed = sorted(ids)
        # Open pages mostly ask for little, and reading whole jobs for them is what they would cost most.
        little = all(watch.fields is not None and watch.fields <= LITTLE for watch in watches)
        read: Callable[..., Awaitable[Sequence[Job | Placed]]] = reading.placed if little else reading.briefs
        for start in range(0, len(listed), READ_AT_ONCE):
            found += await read(self._core.db, listed[start : start + READ_AT_ONCE])
        return found

    async def _pump(self, channel: _Channel, subscribed: asyncio.Event) -> None:
        async with self._core.changes.subscribe() as subscription:
            channel.place = self.places.now()
            subscribed.set()
            while True:
                changed = await subscription.next()
                began = time.monotonic()
                async with channel.lock:
                    try:
                        await self._tell(channel, changed)
                    except Exception as problem:
                        # Away from its database a replica tells nothing; it says so rather than to be silent for ever.
                        log.warning("stream_read_failed", error=f"{type(problem).__name__}: {problem}")
                        self._reset_all(channel)
                # A storm of changes costs at most a fifth of this process.
                took = time.monotonic() - began
                await asyncio.sleep(max(channel.seconds, min(4 * took, LONGEST_PAUSE_SECONDS)))

    async def _tell(self, channel: _Channel, changed: Changed) -> None:
        place = self.places.at(changed.position)
        if changed.overflow:
            self._reset_all(channel)
            return
        watches = {watcher.watch for watcher in channel.watchers}
        ids, lost = await self._worth_reading(watches, changed.ids)
        jobs = await self._read(ids, watches)
        by_id: dict[UUID, tuple[Job | Placed, ...]] = {job.id: (job,) for job in jobs}
        encoded: dict[tuple[JobId, frozenset[str] | None], bytes] = {}
        messages: dict[Watch, bytes | None] = {}
        for watch in watches:
            if watch in lost:
                messages[watch] = None
                continue
            told = []
            # Most who watch by name hear nothing: that must not cost a look at each job.
            for job in jobs if watch.job is None else by_id.get(watch.job, ()):
                if watch.wants(job, self._housekeeping):
                    key = (job.id, watch.fields)
                    if key not in encoded:
                        encoded[key] = _encoded(job, watch.fields)
                    told.append(encoded[key])
            messages[watch] = _message(channel.batch, told, channel.place, place)
        reset = _reset(place)
        for watcher in list(channel.watchers):
            message = messages[watcher.watch]
            if message != b"":
                watcher.offer(reset if message is None else message, reset)
        channel.place = place

    def _reset_all(self, channel: _Channel) -> None:
        channel.place = self.places.now()
        reset = _reset(channel.place)
        for watcher in list(channel.watchers):
            watcher.offer(reset, reset)


def _encoded(job: Job | Placed, fields: frozenset[str] | None) -> bytes:
    return encode(brief_job_json(job) if isinstance(job, Job) and fields is None else some_job_json(job, fields or ()))


def _message(batch: bool, jobs: Sequence[bytes], before: str, place: str) -> bytes | None:
    """What to send for these jobs; empty for none, None when it must be a reset."""
    if not jobs:
        return b""
    if not batch:
        last = len(jobs) - 1
        return b"".join(
            b"id: %b\nevent: job\ndata: %b\n\n" % ((place if n == last else before).encode(), job)
            for n, job in enumerate(jobs)
        )
    if len(jobs) > MOST_IN_BATCH:
        return None
    return b'id: %b\nevent: jobs\ndata: {"jobs":[%b]}\n\n' % (place.encode(), b",".join(jobs))


def _reset(place: str) -> bytes:
    return b"id: %b\nevent: reset\ndata: {}\n\n" % place.encode()


def _tick(place: str) -> bytes:
    """Moves the place without telling anything: events need data, an id alone is none."""
    return b"id: %b\n\n" % place.encode()
