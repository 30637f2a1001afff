"""Instances as pods of one namespace.

Promises
- The name of a start is never used twice, and a pod says by its labels which start of which installation it is. So a start
  that is repeated, after a crash or by another replica, makes one pod.
- A pod is deleted by its UID, and nothing counts as gone before the API server says so.
- What a poll hears may be a moment old; what ends, fails or deletes something was read by GET.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

from paddock.jobs.errors import TransientResourceError
from paddock.runtimes.kubernetes import facts, failures
from paddock.runtimes.kubernetes.client import Kubernetes, Object
from paddock.runtimes.kubernetes.creating import NameTaken, ensure
from paddock.runtimes.kubernetes.errors import ApiError
from paddock.runtimes.kubernetes.growing import Resizing
from paddock.runtimes.kubernetes.manifest import COMPONENT, CONTAINER, GRACE_SECONDS, INSTALLATION, INSTANCE, pod_of
from paddock.runtimes.kubernetes.objects import Pod
from paddock.runtimes.kubernetes.pod_settings import PodSettings
from paddock.runtimes.kubernetes.reading import ENDED, found_of, is_deleted, moment
from paddock.runtimes.kubernetes.resources import EVENTS, PODS
from paddock.runtimes.kubernetes.watching import NamespaceWatch
from paddock.runtimes.runtime import Found, Look, RuntimeWords, Start, StartRefused, Usage

# How long after its grace a pod is still believed to go by itself.
FORCED_AFTER = timedelta(seconds=30)
LOG_BYTES = 256 << 10
MOST_LISTINGS = 8


@dataclass
class _Listing:
    """A list that is read page by page: what was fetched and not yet given, and where it goes on."""

    waiting: list[Found] = field(default_factory=list)
    after: str | None = ""


class KubernetesRuntime:
    words = RuntimeWords("Pod", "Kubernetes")
    grows = True

    def __init__(
        self,
        client: Kubernetes,
        *,
        namespace: str,
        image: str,
        settings: PodSettings,
        installation: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.client, self.namespace, self.installation = client, namespace, installation
        self._image, self._settings, self._now = image, settings, now
        self.watch = NamespaceWatch(client, PODS, namespace, self._labels)
        self._resizing = Resizing(client, namespace)
        # By the last name that was given of each.
        self._listings: OrderedDict[str, _Listing] = OrderedDict()

    @property
    def _labels(self) -> dict[str, str]:
        return {INSTALLATION: self.installation, "app.kubernetes.io/component": COMPONENT}

    @asynccontextmanager
    async def alongside(self, changed: Callable[[UUID], None]) -> AsyncIterator[None]:
        def hear(before: Object | None, now: Object | None) -> None:
            if before is not None and (now is None or _is_over(now)) and not (now is not None and _is_over(before)):
                changed(UUID(before["metadata"]["labels"][INSTANCE]))

        self.watch.changed = hear
        try:
            async with self.watch.running():
                yield
        finally:
            await self.client.close()

    async def start(self, start: Start) -> bool:
        with _translated_refusals(f"Pod {self.namespace}/{start.name}", start=start):
            if _number_of(start.name) > 1 and not await self._end_earlier(start.instance, start.name):
                return False
            manifest = pod_of(start, image=self._image, installation=self.installation, settings=self._settings)
            made = await ensure(self.client, PODS, self.namespace, manifest)
            if made is not None:
                self.watch.note(made)
            return made is not None

    async def _end_earlier(self, instance: UUID, name: str) -> bool:
        """Whether no earlier start of this instance is left."""
        left = False
        for pod in await self._pods_of(instance):
            if _number_of(pod["metadata"]["name"]) < _number_of(name):
                await self._end(pod, GRACE_SECONDS)
                left = True
        return not left

    async def _pods_of(self, instance: UUID) -> Sequence[Object]:
        return await self.client.list(PODS, self.namespace, labels={**self._labels, INSTANCE: str(instance)})

    async def get(self, name: str, look: Look = "now") -> Found | None:
        with _translated_refusals(f"Pod {self.namespace}/{name}"):
            if look == "polled" and (noted := self.watch.get(name)) is not None:
                found = found_of(noted)
                if found is not None and found.state in ("starting", "up"):
                    return found
            pod = await self._read(name)
            if pod is None:
                self.watch.forget(name)
                return self._taken_away(name, look)
            return found_of(pod, await self._events(pod) if look == "closely" else None)

    def _taken_away(self, name: str, look: Look) -> Found | None:
        """One that is gone, where the cluster said before that it takes it away. A name is never used again."""
        pod = self.watch.last_seen(name)
        found = None if pod is None else found_of(pod, () if look == "closely" else None)
        return found if found is not None and found.why == "disrupted" else None

    async def _read(self, name: str) -> Object | None:
        """None too for a pod that is not ours: nothing of ours has this name."""
        pod = await self.client.get(PODS, self.namespace, name)
        labels = {} if pod is None else pod["metadata"].get("labels") or {}
        return pod if labels.get(INSTALLATION) == self.installation else None

    async def _events(self, pod: Object) -> Sequence[Object]:
        metadata = pod["metadata"]
        fields = {"involvedObject.name": metadata["name"], "involvedObject.uid": metadata["uid"]}
        try:
            return await self.client.list(EVENTS, self.namespace, fields=fields)
        except ApiError:
            return ()  # they explain; without them it is as it is

    async def list(self, after: str = "", limit: int = 100) -> Sequence[Found]:
        """Kubernetes gives pages by its own tokens and not by names: a listing goes on where the last page of it ended."""
        listing = self._listings.pop(after, None) if after else None
        listing = listing or _Listing()
        given: list[Found] = []
        with _translated_refusals(f"Pods of {self.namespace}"):
            while len(given) < limit:
                if not listing.waiting:
                    if listing.after is None:
                        break
                    page = await self.client.list_page(PODS, self.namespace, labels=self._labels, after=listing.after)
                    found = [one for pod in page.items if (one := found_of(pod)) is not None and one.name > after]
                    listing = _Listing(found, page.after or None)
                    continue
                taken = limit - len(given)
                given += listing.waiting[:taken]
                del listing.waiting[:taken]
        if given and (listing.waiting or listing.after is not None):
            self._listings[given[-1].name] = listing
            while len(self._listings) > MOST_LISTINGS:
                self._listings.popitem(last=False)
        return given

    async def logs(self, name: str) -> str | None:
        with _translated_refusals(f"Pod {self.namespace}/{name}"):
            return await self.client.log(PODS, self.namespace, name, container=CONTAINER, most=LOG_BYTES)

    async def delete(
        self, name: str, uid: str | None = None, grace: timedelta | None = None, *, keep_loaded: bool = False
    ) -> bool:
        """What a pod has loaded goes with it, whatever is to be kept."""
        seconds = GRACE_SECONDS if grace is None else int(grace.total_seconds())
        with _translated_refusals(f"Pod {self.namespace}/{name}"):
            noted = self.watch.get(name)
            if noted is not None and is_deleted(cast(Pod, noted)) and not self._is_late(noted):
                return False
            pod = await self._read(name)
            if pod is not None and (uid is None or pod["metadata"]["uid"] == uid):
                await self._end(pod, seconds)
                return False
            self.watch.forget(name)
            instance = _instance_of(name)
            return (
                instance is None or uid is not None or _number_of(name) == 1 or await self._end_earlier(instance, name)
            )

    async def _end(self, pod: Object, grace_seconds: int) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if not is_deleted(cast(Pod, pod)):
            await self.client.delete(PODS, self.namespace, name, uid=uid, grace_seconds=grace_seconds)
        elif self._is_late(pod):
            # Its node confirms nothing any more. An instance writes nothing outside itself: one that still runs there does no harm.
            await self.client.delete(PODS, self.namespace, name, uid=uid, grace_seconds=0)

    def _is_late(self, pod: Object) -> bool:
        """Its time of deletion is when its grace is over."""
        return self._now() > moment(pod["metadata"]["deletionTimestamp"]) + FORCED_AFTER

    async def release(self, name: str, uid: str) -> None:
        with _translated_refusals(f"Pod {self.namespace}/{name}"):
            await self.client.delete(PODS, self.namespace, name, uid=uid, grace_seconds=GRACE_SECONDS)

    async def grow(self, name: str, uid: str, memory_bytes: int) -> bool:
        with _translated_refusals(f"Pod {self.namespace}/{name}"):
            return await self._resizing.grow(name, uid, memory_bytes)

    async def take_back(self, name: str, uid: str, memory_bytes: int) -> None:
        with _translated_refusals(f"Pod {self.namespace}/{name}"):
            await self._resizing.ask(name, memory_bytes)

    async def usage(self, name: str) -> Usage | None:
        """Unknown here: the instance reads it from its own control group, and tells it in its status."""
        return None

    async def memory_bytes(self) -> int | None:
        return None


@contextmanager
def _translated_refusals(about: str, *, start: Start | None = None) -> Iterator[None]:
    """What the API server refuses, as what a handler may raise."""
    try:
        yield
    except ApiError as problem:
        fact = facts.of_error(problem.code, problem.status, verb=problem.verb, about=about, message=problem.message)
        diagnosis = failures.diagnose([fact], before={} if start is None else start.failures)
        assert diagnosis is not None  # an error of the API always is one
        failures.count(diagnosis)
        if start is not None and diagnosis.verdict == "permanent":
            raise StartRefused(diagnosis) from problem
        error = diagnosis.error()
        if isinstance(error, TransientResourceError) and problem.retry_after is not None:
            error.delay = timedelta(seconds=problem.retry_after)
        raise error from problem
    except NameTaken as taken:
        fact = facts.of_error(409, {"reason": "AlreadyExists", "message": str(taken)}, verb="create", about=about)
        diagnosis = failures.diagnose([fact])
        assert diagnosis is not None
        raise StartRefused(replace(diagnosis, verdict="permanent", message=str(taken))) from taken


def _is_over(pod: Object) -> bool:
    found = found_of(pod)
    return (pod.get("status") or {}).get("phase") in ENDED or (found is not None and found.state == "ended")


def _instance_of(name: str) -> UUID | None:
    """`ladybug-wrapper-{id}-{n}`"""
    try:
        return UUID(name.partition("-wrapper-")[2].rpartition("-")[0])
    except ValueError:
        return None


def _number_of(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
