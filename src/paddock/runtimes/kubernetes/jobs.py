"""`run_container`: containers as a Job, for as long as a turn of one of our jobs waits for them.

Promises
- The number of the try is saved before its Job is made, and the Job carries it. So whoever comes after a kill finds the Job that
  runs, and takes it over; a second one of the same try is never made.
- A watch, where there is one, only tells when to look: that a Job ended or failed is read from the API server.
- Log and evidence are read before a Job is deleted, and it is deleted by its UID. `clean_container` deletes what is left.
- What a failure means is `failures`' business; how often each category came is saved with the job and counts for the next.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.jobs.model import JsonObject
from paddock.jobs.turn import Turn
from paddock.runtimes.diagnosis import Diagnosis
from paddock.runtimes.kubernetes import facts, failures
from paddock.runtimes.kubernetes.client import Kubernetes, Object
from paddock.runtimes.kubernetes.creating import NameTaken, ensure
from paddock.runtimes.kubernetes.errors import ApiError
from paddock.runtimes.kubernetes.facts import Fact
from paddock.runtimes.kubernetes.following import JobsWatch, owned_by
from paddock.runtimes.kubernetes.job_manifest import JOB, TRY, JobSpec, job_of, name_of
from paddock.runtimes.kubernetes.manifest import INSTALLATION
from paddock.runtimes.kubernetes.objects import Event, Job, Pod
from paddock.runtimes.kubernetes.reading import SCHEDULE, SCHEDULE_WITH_NEW_NODE, SETTLE, START, moment
from paddock.runtimes.kubernetes.resources import EVENTS, JOBS, PODS

# A Job that has no pod by then tells by its events why.
NO_POD_AFTER = timedelta(seconds=15)
# Between two looks; and where a watch tells of changes, to see that a clock is over.
PAUSES = (0.2, 0.5, 1.0, 2.0)
WATCHED_PAUSE = 5.0
NET = timedelta(minutes=5)
LOG_BYTES = 64 << 10
KEY = "container"


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """It ended well."""

    log: str
    pod: str
    node: str


Hide = Callable[[str], str]


async def nothing_hidden() -> Hide:
    return str


@dataclass
class JobCluster:
    """Where Jobs run. `installation` gives the id that ours carry, or raises. Without a `watch` each turn polls its Job."""

    client: Kubernetes
    installation: Callable[[], Awaitable[str]]
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    watch: JobsWatch | None = None


async def run_container(
    turn: Turn[Any], spec: JobSpec, cluster: JobCluster, hiding: Callable[[], Awaitable[Hide]] = nothing_hidden
) -> ContainerEnd:
    """Raises what its failure means. Saves its own state under `container` and leaves the rest as it is. `hiding` is asked,
    once the containers said something, what of it nobody may read."""
    while True:
        run = _Run(turn, spec, cluster, await cluster.installation(), hiding)
        end = await run.to_its_end()
        if end is not None:
            return end


async def clean_container(turn: Turn[Any], namespace: str, cluster: JobCluster) -> bool:
    """Whether nothing of it is left. For a kind's cleanup."""
    state = turn.saved.get(KEY)
    if state is None:
        return True
    run = _Ours(cluster, namespace, str(turn.cleanup_of or turn.id), await cluster.installation())
    return await run.remove(state["name"]) and await run.remove(state.get("left"))


@dataclass
class _Ours:
    cluster: JobCluster
    namespace: str
    job: str
    installation: str

    async def read(self, name: str) -> Object | None:
        """None too for one that is not ours."""
        found = await self.cluster.client.get(JOBS, self.namespace, name)
        labels = {} if found is None else found["metadata"].get("labels") or {}
        mine = (labels.get(INSTALLATION), labels.get(JOB)) == (self.installation, self.job)
        return found if mine else None

    async def remove(self, name: str | None) -> bool:
        found = None if name is None else await self.read(name)
        if found is None or name is None:
            return True
        if "deletionTimestamp" not in found["metadata"]:
            await self.delete(found)
        return False

    async def delete(self, found: Object) -> None:
        metadata = found["metadata"]
        await self.cluster.client.delete(
            JOBS, self.namespace, metadata["name"], uid=metadata["uid"], propagation="Background"
        )


@dataclass
class _Run:
    """One try."""

    turn: Turn[Any]
    spec: JobSpec
    cluster: JobCluster
    installation: str
    hiding: Callable[[], Awaitable[Hide]]
    state: JsonObject = field(default_factory=dict)
    # Since when what may settle is as it is.
    unsettled_since: datetime | None = None

    def __post_init__(self) -> None:
        self.ours = _Ours(self.cluster, self.spec.namespace, str(self.turn.id), self.installation)

    @property
    def client(self) -> Kubernetes:
        return self.cluster.client

    @property
    def about(self) -> str:
        return f"Job {self.spec.namespace}/{self.state['name']}"

    async def to_its_end(self) -> ContainerEnd | None:
        """None: it is to be tried at once, with more memory."""
        await self._begin()
        try:
            job = await self._ensure_job()
            return await self._wait(job)
        except ApiError as problem:
            diagnosis = failures.of_refusal(problem, self.about, before=self.state["failures"])
            # Whatever became of a create in doubt: the next attempt looks for this same try.
            await self._note(diagnosis, over=problem.verb == "create" and not problem.doubt)
            error = diagnosis.error()
            if isinstance(error, TransientResourceError) and problem.retry_after is not None:
                error.delay = timedelta(seconds=problem.retry_after)
            raise error from problem
        except NameTaken as taken:
            raise PermanentRunnerError(str(taken), code="name_taken", hint="Delete it, or rename it.") from taken

    async def _begin(self) -> None:
        """The try that is under way, or the next one."""
        before = self.turn.saved.get(KEY)
        if before is not None and not before["over"]:
            self.state = dict(before)
            return
        number = 1 if before is None else before["try"] + 1
        self.state = {
            "try": number,
            "name": name_of(self.spec, number),
            "memory_bytes": self.spec.memory_bytes if before is None else before["memory_bytes"],
            "failures": {} if before is None else before["failures"],
            "left": None if before is None else before["name"],
            "made": False,
            "started": False,
            "over": False,
        }
        await self._save()

    async def _save(self) -> None:
        await self.turn.save({**self.turn.saved, KEY: self.state}, progress=False)

    async def _ensure_job(self) -> Object:
        if self.state["left"] is not None:
            await self.ours.remove(self.state["left"])
        found = await self.ours.read(self.state["name"])
        if found is None and self.state["made"]:
            raise await self._failed([facts.gone(self.about, started=self.state["started"])], None, ())
        while found is None:
            found = await ensure(self.client, JOBS, self.spec.namespace, self._manifest())
            if found is None:
                await self.client.clock.sleep(PAUSES[-1])
        if not self.state["made"]:
            self.state["made"] = True
            await self._save()
        return found

    def _manifest(self) -> Object:
        net = SCHEDULE_WITH_NEW_NODE + START + self.spec.timeout + NET
        return job_of(
            self.spec,
            job=str(self.turn.id),
            number=self.state["try"],
            installation=self.installation,
            memory_bytes=self.state["memory_bytes"],
            net=net,
        )

    async def _wait(self, job: Object) -> ContainerEnd | None:
        """An end that a watch told of, good or bad, is one only once it was read from the API server."""
        looks = 0
        async with self._changes() as changed:
            pods, was_read = await self._pods(job), True
            while True:
                if await self._has_started(pods):
                    self.state["started"] = True
                    await self._save()
                complete = _is_complete(cast(Job, job))
                seen = [] if complete else await self._facts(job, pods)
                diagnosis = self._judged(seen, pods) if seen else None
                if (complete or diagnosis is not None) and not was_read:
                    job, pods = await self._read(pods)
                    was_read = True
                    continue
                if complete:
                    return await self._done(job, pods)
                if diagnosis is not None:
                    if diagnosis.verdict == "larger" and await self._larger(diagnosis, job, pods):
                        return None
                    raise await self._failed(seen, job, pods, diagnosis)
                await self._pause(changed, looks)
                looks += 1
                told = self._watched()
                was_read = told is None
                job, pods = told or await self._read(pods)

    def _changes(self) -> AbstractAsyncContextManager[asyncio.Event | None]:
        watch = self.cluster.watch
        return nullcontext() if watch is None else watch.changes(str(self.turn.id))

    def _watched(self) -> tuple[Object, Sequence[Pod]] | None:
        """None: no watch knows it, and the API server is asked."""
        watch = self.cluster.watch
        return None if watch is None else cast(Any, watch.job(self.state["name"]))

    async def _pause(self, changed: asyncio.Event | None, looks: int) -> None:
        polled = PAUSES[min(looks, len(PAUSES) - 1)]
        if changed is None:
            await self.client.clock.sleep(polled)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(polled if self._watched() is None else WATCHED_PAUSE):
                await changed.wait()
        changed.clear()

    async def _read(self, pods: Sequence[Pod]) -> tuple[Object, Sequence[Pod]]:
        """`pods` are those that were seen last."""
        found = await self.ours.read(self.state["name"])
        if found is None:
            raise await self._failed([facts.gone(self.about, started=self.state["started"])], None, pods)
        return found, await self._pods(found)

    async def _pods(self, job: Object) -> Sequence[Pod]:
        labels = {INSTALLATION: self.installation, JOB: str(self.turn.id), TRY: str(self.state["try"])}
        found = await self.client.list(PODS, self.spec.namespace, labels=labels)
        return cast(Sequence[Pod], owned_by(job, found))

    async def _has_started(self, pods: Sequence[Pod]) -> bool:
        return not self.state["started"] and any(facts.has_started(pod, self.spec.main) for pod in pods)

    async def _facts(self, job: Object, pods: Sequence[Pod]) -> list[Fact]:
        started = self.state["started"]
        seen: list[Fact] = []
        for pod in pods:
            told = failures.waiting(pod, main=self.spec.main)
            if told is not None:
                self.turn.report(phase="waiting", waiting_for=told.words)
            events = await self._events(cast(Object, pod)) if told is not None and told.clock is not None else ()
            seen += facts.of_pod(pod, main=self.spec.main, ours=self.spec.ours, events=events, started=started)
        if not pods and self._age(job) > NO_POD_AFTER:
            seen += facts.of_job(cast(Job, job), events=await self._events(job), started=started)
        else:
            seen += facts.of_job(cast(Job, job), started=started)
        if self._is_late(pods):
            seen.append(facts.late(self.about, self.spec.main))
        return seen

    def _is_late(self, pods: Sequence[Pod]) -> bool:
        began = [at for pod in pods if (at := facts.began_at(pod, self.spec.main)) is not None]
        return bool(began) and self.cluster.now() - moment(began[0]) > self.spec.timeout

    def _age(self, found: Object) -> timedelta:
        return self.cluster.now() - moment(found["metadata"]["creationTimestamp"])

    async def _events(self, of: Object) -> Sequence[Event]:
        fields = {"involvedObject.uid": of["metadata"]["uid"]}
        return cast(Sequence[Event], await self.client.list(EVENTS, self.spec.namespace, fields=fields))

    def _judged(self, seen: Sequence[Fact], pods: Sequence[Pod]) -> Diagnosis | None:
        """None: nothing failed, or what is wrong may still come right."""
        diagnosis = failures.diagnose(seen, before=self.state["failures"])
        if diagnosis is None or diagnosis.clock != "settle":
            self.unsettled_since = None
        if diagnosis is None or diagnosis.clock is None or not pods:
            return diagnosis
        now, pod = self.cluster.now(), pods[-1]
        if diagnosis.clock == "settle":
            self.unsettled_since = self.unsettled_since or now
            return diagnosis if now - self.unsettled_since > SETTLE else None
        if diagnosis.clock == "schedule":
            told = failures.waiting(pod, main=self.spec.main)
            longest = SCHEDULE_WITH_NEW_NODE if told is not None and told.adds_node else SCHEDULE
            return diagnosis if self._age(cast(Object, pod)) > longest else None
        scheduled = facts.scheduled_at(pod)
        return diagnosis if scheduled is not None and now - moment(scheduled) > START else None

    async def _larger(self, diagnosis: Diagnosis, job: Object, pods: Sequence[Pod]) -> bool:
        """Once more, with twice the memory, where it may have that."""
        twice = 2 * self.state["memory_bytes"]
        if twice > (self.spec.memory_most or 0):
            return False
        self._tell(await self._logs(pods))
        self.turn.log.warning(diagnosis.message, memory_bytes=self.state["memory_bytes"], next=twice)
        self.state["memory_bytes"] = twice
        await self._note(diagnosis, over=True)
        await self.ours.delete(job)
        return True

    async def _failed(
        self, seen: Sequence[Fact], job: Object | None, pods: Sequence[Pod], diagnosis: Diagnosis | None = None
    ) -> InfrastructureError:
        diagnosis = diagnosis or failures.diagnose(seen, before=self.state["failures"])
        assert diagnosis is not None
        if diagnosis.verdict == "larger":
            diagnosis = replace(diagnosis, verdict="permanent", mended_by="you")
        if self.state["started"] and diagnosis.words:
            # A container may say with its end what it likes.
            diagnosis = replace(diagnosis, words=(await self.hiding())(diagnosis.words))
        self._tell(await self._logs(pods))
        self.turn.log.error(diagnosis.message, category=diagnosis.category, words=diagnosis.words, node=diagnosis.node)
        self.state["diagnosis"] = diagnosis.as_json()
        await self._note(diagnosis, over=True)
        if job is not None:
            await self.ours.delete(job)
        return diagnosis.error()

    async def _done(self, job: Object, pods: Sequence[Pod]) -> ContainerEnd:
        logs = await self._logs(pods)
        self._tell(logs)
        self.state["over"] = True
        await self._save()
        await self.ours.delete(job)
        pod = pods[-1] if pods else cast(Pod, {})
        return ContainerEnd(
            logs.get(self.spec.main, ""),
            pod.get("metadata", {}).get("name", ""),
            str(pod.get("spec", {}).get("nodeName", "")),
        )

    async def _note(self, diagnosis: Diagnosis, *, over: bool) -> None:
        counts = self.state["failures"]
        self.state["failures"] = {**counts, diagnosis.category: counts.get(diagnosis.category, 0) + 1}
        self.state["over"] = over
        failures.count(diagnosis)
        await self._save()

    async def _logs(self, pods: Sequence[Pod]) -> dict[str, str]:
        """Of each container that wrote something. What cannot be read now is lost: an end waits for no log."""
        if not pods:
            return {}
        name, found = pods[-1].get("metadata", {}).get("name", ""), {}
        for container in self.spec.all:
            try:
                text = await self.client.log(PODS, self.spec.namespace, name, container=container.name, most=LOG_BYTES)
            except ApiError:
                text = None
            if text:
                found[container.name] = text
        if not found:
            return found
        hide = await self.hiding()
        return {name: await asyncio.to_thread(hide, text) for name, text in found.items()}

    def _tell(self, logs: dict[str, str]) -> None:
        for name, text in logs.items():
            for line in text.splitlines():
                self.turn.log.info(line, container=name)


def _is_complete(job: Job) -> bool:
    conditions = job.get("status", {}).get("conditions", [])
    return any(one.get("type") == "Complete" and one.get("status") == "True" for one in conditions)
