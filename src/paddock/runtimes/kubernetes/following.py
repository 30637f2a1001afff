"""The Jobs of one installation in a namespace, and their pods, as two watches tell of them to all turns that wait for one.

It is for waiting alone: what is here may be a moment old. Who would end a Job, or call it failed, reads it from the API server.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from paddock.runtimes.kubernetes.client import Kubernetes, Object
from paddock.runtimes.kubernetes.job_manifest import JOB
from paddock.runtimes.kubernetes.manifest import INSTALLATION
from paddock.runtimes.kubernetes.resources import JOBS, PODS
from paddock.runtimes.kubernetes.watching import NamespaceWatch


class JobsWatch:
    def __init__(self, client: Kubernetes, namespace: str, installation: str) -> None:
        labels = {INSTALLATION: installation}
        self._jobs, self._pods = (NamespaceWatch(client, resource, namespace, labels) for resource in (JOBS, PODS))
        # Who waits for a change of one of our jobs, and who for any.
        self._waiting: dict[str | None, set[asyncio.Event]] = defaultdict(set)
        for watch in (self._jobs, self._pods):
            watch.changed = self._wake

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for watch in (self._jobs, self._pods):
                await stack.enter_async_context(watch.running())
            yield

    @property
    def synced(self) -> bool:
        return self._jobs.synced and self._pods.synced

    @property
    def jobs(self) -> Collection[Object]:
        return self._jobs.all()

    @property
    def pods(self) -> Collection[Object]:
        return self._pods.all()

    def job(self, name: str) -> tuple[Object, Sequence[Object]] | None:
        """The Job with its pods. None: it is not known here, which says nothing."""
        found = self._jobs.get(name) if self.synced else None
        return None if found is None else (found, owned_by(found, self.pods))

    @asynccontextmanager
    async def changes(self, job: str | None = None) -> AsyncIterator[asyncio.Event]:
        """An event that is set at each change of the Jobs and pods of one of our jobs, or of any. It is for its owner to clear,
        before it looks."""
        changed = asyncio.Event()
        self._waiting[job].add(changed)
        try:
            yield changed
        finally:
            self._waiting[job].discard(changed)
            if not self._waiting[job]:
                del self._waiting[job]

    def _wake(self, before: Object | None, now: Object | None) -> None:
        for found in (before, now):
            if found is not None:
                labels = found["metadata"].get("labels") or {}
                for job in (None, labels.get(JOB)):
                    for changed in self._waiting.get(job, ()):
                        changed.set()


def owned_by(job: Object, pods: Collection[Object]) -> Sequence[Object]:
    """One job of ours may run several containers, one after the other: the pod of the one before may still be there."""
    uid = job["metadata"]["uid"]
    return [pod for pod in pods if any(one["uid"] == uid for one in pod["metadata"].get("ownerReferences") or ())]
