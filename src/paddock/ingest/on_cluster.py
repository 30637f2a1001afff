"""RunIngester and RunHooks as Jobs of a cluster. What a step wrote is read here like what a local command wrote.

- A worker looks before it makes a Job (`backpressure`); what waits for the cluster is uncounted, and gives its slot back.
- A draft that the containers sealed counts whatever became of their Job; a later attempt takes over one that runs.
- A try that failed leaves its draft: the next one has another, and whoever still writes into the old one is refused.
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from paddock.config import ConfigError
from paddock.ingest import backpressure, fetching, hooking
from paddock.ingest.backpressure import JobSeen, Queue, Seen
from paddock.ingest.hiding import Hide, hiding_by_sums
from paddock.ingest.launching import StepFolder
from paddock.ingest.model import BatchPayload, FetchPayload, prefix_of_step
from paddock.ingest.resources import IngestResources
from paddock.ingest.settings import IngestSettings
from paddock.ingest.source_settings import Hook, Source, setting_of_runtime
from paddock.ingest.step_pod import StepFacts, job_spec
from paddock.ingest.stepping import BAD_INPUT
from paddock.ingest.transfer_files import (
    CATALOG_MISSING,
    HIDDEN,
    TRANSFER,
    Step,
    no_catalog,
    read_hidden_sums,
    sealed_outputs,
)
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError, UserMistake
from paddock.jobs.model import JobError
from paddock.jobs.outcomes import Outcome, TransientFailure, again, done
from paddock.jobs.turn import Turn
from paddock.runtimes.kubernetes.access import find_access
from paddock.runtimes.kubernetes.client import Kubernetes, Object
from paddock.runtimes.kubernetes.errors import ApiError
from paddock.runtimes.kubernetes.following import JobsWatch
from paddock.runtimes.kubernetes.job_manifest import JOB, JobSpec
from paddock.runtimes.kubernetes.jobs import KEY, JobCluster, clean_container, run_container
from paddock.runtimes.kubernetes.pod_settings import PodSettings
from paddock.storage.drafts import new_draft_id
from paddock.storage.scratch import room

# A step that waited in vain comes again soon: another of this worker's jobs goes first.
COME_AGAIN = timedelta(seconds=30)
ENDED = ("Complete", "Failed")
# In a job's saved state: since when it waits for the cluster, over several turns.
SINCE = "waiting_since"
SYNC_LOOKS, SYNC_SECONDS = 300, 0.1


class Cluster:
    """One for each installation that this process sees: its client, what its watches have told, and who waits for a place."""

    def __init__(self, client: Kubernetes, namespace: str, installation: str) -> None:
        self.client = client
        self.namespace = namespace
        self.installation = installation
        self.watch = JobsWatch(client, namespace, installation)
        self.queue = Queue(self.look, self.tick)
        self._running: AbstractAsyncContextManager[None] | None = None

    def look(self) -> list[JobSeen]:
        placed = {_step_of(pod) for pod in self.watch.pods if _is(pod, "PodScheduled")}
        return [
            JobSeen(step, step in placed)
            for job in self.watch.jobs
            if (step := _step_of(job)) is not None and not any(_is(job, ended) for ended in ENDED)
        ]

    async def tick(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with self.watch.changes() as changed, asyncio.timeout(backpressure.LOOK_AGAIN.total_seconds()):
                await changed.wait()

    async def watching(self) -> None:
        """Begins once, on first use; it ends with the process."""
        if self._running is None:
            self._running = self.watch.running()
            await self._running.__aenter__()
        for _ in range(SYNC_LOOKS):
            if self.watch.synced:
                return
            await asyncio.sleep(SYNC_SECONDS)
        raise TransientResourceError(
            "The cluster's API server does not answer: nobody knows how full it is.",
            code="api_unavailable",
            budget="cluster",
        )

    async def close(self) -> None:
        if self._running is not None:
            await self._running.__aexit__(None, None, None)
            self._running = None
        await self.client.close()

    @property
    def jobs(self) -> JobCluster:
        async def installation() -> str:
            return self.installation

        return JobCluster(self.client, installation, watch=self.watch)


def _step_of(found: Object) -> str | None:
    step: str | None = (found["metadata"].get("labels") or {}).get(JOB)
    return step


def _is(found: Object, condition: str) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or []
    return any(one.get("type") == condition and one.get("status") == "True" for one in conditions)


CLUSTERS: dict[tuple[str, str], Cluster] = {}


async def cluster_of(turn: Turn[Any], resources: IngestResources) -> Cluster:
    installation = turn.secrets.get("installation")
    if installation is None:
        raise TransientResourceError(
            "This Paddock has not been bound to its cluster yet.",
            code="not_bound",
            hint="Start the control plane in the cluster once; `paddock cluster show` tells.",
            budget="cluster",
        )
    namespace = resources.config.of(IngestSettings).kubernetes_ingest_namespace
    found = CLUSTERS.get((namespace, installation))
    if found is None:
        try:
            access = find_access(os.environ, setting_of_runtime(resources.config, "kubernetes_context"))
        except ConfigError as problem:
            raise PermanentRunnerError(str(problem), code="config_missing") from None
        found = CLUSTERS[namespace, installation] = Cluster(Kubernetes(access), namespace, installation)
    await found.watching()
    return found


async def run_ingester(turn: Turn[FetchPayload], resources: IngestResources) -> Outcome:
    outcome = await fetching.run(turn, resources, _fetch)
    if isinstance(outcome, TransientFailure):
        # What was sealed tells of a tap that failed: the next try has a draft of its own.
        await _forget_draft(turn)
    return outcome


async def run_hooks(turn: Turn[BatchPayload], resources: IngestResources) -> Outcome:
    return await hooking.run(turn, resources, _hook)


async def clean(turn: Turn[Any], resources: IngestResources) -> Outcome:
    """The job ended without its worker: its Job goes, and with it its pod."""
    cluster = await cluster_of(turn, resources)
    namespace = resources.config.of(IngestSettings).kubernetes_ingest_namespace
    if await clean_container(turn, namespace, cluster.jobs):
        return done()
    return again(timedelta(seconds=2))


async def _fetch(turn: Turn[FetchPayload], resources: IngestResources, folder: StepFolder) -> Outcome | None:
    source = resources.source(turn.payload.source)
    if CATALOG_MISSING in turn.secrets:
        raise PermanentRunnerError(
            no_catalog(turn.secrets[CATALOG_MISSING]),
            code="catalog_missing",
            hint="Put it where paddock.toml names it: beside the control plane, and beside the workers.",
        )
    return await _contained(turn, resources, folder, source, "fetch", None)


async def _hook(
    turn: Turn[BatchPayload], resources: IngestResources, name: str, folder: StepFolder, _copy: hooking.Copy
) -> Outcome | None:
    return await _contained(turn, resources, folder, resources.hooks[name], "hooks", name)


async def _contained(
    turn: Turn[Any],
    resources: IngestResources,
    folder: StepFolder,
    settings: Source | Hook,
    step: Step,
    hook: str | None,
) -> Outcome | None:
    payload = turn.payload
    if TRANSFER not in turn.saved:
        await turn.save({**turn.saved, TRANSFER: new_draft_id()}, progress=False)
    draft = str(turn.saved[TRANSFER])
    prefix = prefix_of_step(payload.source, payload.run_id, payload.batch, step)
    if await sealed_outputs(resources.store, prefix, draft) is None:
        cluster = await cluster_of(turn, resources)
        spec = _spec(turn, resources, settings, step, hook, draft)
        since = turn.saved.get(SINCE) or datetime.now(UTC).isoformat()
        async with _place(turn, cluster, since) as there_is_room:
            if not there_is_room:
                return again(COME_AGAIN, saved={**turn.saved, SINCE: since}, progress=False)
            await _forget(turn, SINCE)
            failed = await _run(turn, resources, spec, cluster, f"{prefix}/{draft}")
        if failed is not None:
            return failed
    elif KEY in turn.saved:
        # A worker was killed between the seal and the end of its Job.
        cluster = await cluster_of(turn, resources)
        if not turn.saved[KEY]["over"]:
            spec = _spec(turn, resources, settings, step, hook, draft)
            await _run(turn, resources, spec, cluster, f"{prefix}/{draft}")
        await _remove_job(turn, cluster)
    await _bring(resources, prefix, draft, folder)
    if settings.secrets:
        await _bring_hidden(resources, f"{prefix}/{draft}", folder)
    return None


async def _remove_job(turn: Turn[Any], cluster: Cluster) -> None:
    """Before its name is forgotten: what it wrote is sealed, and nobody waits for it any more."""
    try:
        await clean_container(turn, cluster.namespace, cluster.jobs)
    except ApiError as problem:
        raise TransientResourceError(
            f"The Job of a step that has ended could not be deleted: {problem}",
            code="api_unavailable",
            budget="cluster",
        ) from problem


@asynccontextmanager
async def _place(turn: Turn[Any], cluster: Cluster, since: str) -> AsyncIterator[bool]:
    """`since` is when it began to wait, perhaps in an earlier turn."""
    step = str(turn.id)

    def tell(seen: Seen) -> None:
        turn.report(phase=backpressure.PHASE, **seen._asdict(), namespace=cluster.namespace, since=since)

    try:
        yield await cluster.queue.wait(step, tell)
    finally:
        cluster.queue.leave(step)


async def _run(
    turn: Turn[Any], resources: IngestResources, spec: JobSpec, cluster: Cluster, place: str
) -> Outcome | None:
    prefix, _, draft = place.rpartition("/")
    try:
        await run_container(turn, spec, cluster.jobs, partial(_hiding, turn, resources, spec, place))
    except InfrastructureError as problem:
        if await sealed_outputs(resources.store, prefix, draft) is not None:
            turn.log.warning("Its outputs are whole, though its Job failed.", problem=problem.message)
            await _remove_job(turn, cluster)
            return None
        container = turn.saved.get(KEY) or {}
        if container.get("over"):
            await _forget_draft(turn)
        code = (container.get("diagnosis") or {}).get("exit_code")
        ingester = isinstance(turn.payload, FetchPayload)
        if ingester and isinstance(problem, UserMistake) and problem.code == "exit_code" and code != BAD_INPUT:
            # An ingester's other codes say nothing: it may be well the next time.
            return TransientFailure(JobError(problem.code, problem.message, problem.hint), unclassified=True)
        raise
    if await sealed_outputs(resources.store, prefix, draft) is None:
        raise TransientResourceError(
            "The containers ended well, and what they wrote did not arrive.", code="not_shipped", budget="cluster"
        )
    return None


async def _hiding(turn: Turn[Any], resources: IngestResources, spec: JobSpec, place: str) -> Hide:
    """The values of its secrets are known in its pod alone."""
    if not any(container.secrets for container in spec.all):
        return str
    return hiding_by_sums(await read_hidden_sums(resources.store, place), turn.secrets["transfer_token"])


async def _forget_draft(turn: Turn[Any]) -> None:
    await _forget(turn, TRANSFER)


async def _forget(turn: Turn[Any], what: str) -> None:
    if what in turn.saved:
        await turn.save({name: value for name, value in turn.saved.items() if name != what}, progress=False)


def _spec(
    turn: Turn[Any], resources: IngestResources, settings: Source | Hook, step: Step, hook: str | None, draft: str
) -> JobSpec:
    config, payload = resources.config, turn.payload
    image = setting_of_runtime(resources.config, "kubernetes_image")
    url = config.of(IngestSettings).transfer_url or config.server
    if image is None or url is None:
        missing = "PADDOCK_KUBERNETES_IMAGE" if image is None else "PADDOCK_INGEST_TRANSFER_URL"
        raise PermanentRunnerError(
            f"This worker cannot run steps on Kubernetes: {missing} is not set.", code="config_missing"
        )
    facts = StepFacts(
        job=str(turn.id),
        namespace=config.of(IngestSettings).kubernetes_ingest_namespace,
        image=image,
        transfer_url=url,
        token=turn.secrets["transfer_token"],
        draft=draft,
        source=payload.source,
        run=payload.run_id,
        batch=payload.batch,
        step=step,
        hook=hook,
        limit=fetching.wanted(payload) if isinstance(payload, FetchPayload) else None,
        has_session="session" in turn.secrets,
        pods=setting_of_runtime(resources.config, "runtime_kubernetes") or PodSettings(),
    )
    return job_spec(facts, settings)


async def _bring_hidden(resources: IngestResources, place: str, folder: StepFolder) -> None:
    """For the reader of a tap's messages, who knows no store."""
    told = await read_hidden_sums(resources.store, place)
    if told is not None:
        (folder.inputs / HIDDEN).write_bytes(told)


async def _bring(resources: IngestResources, prefix: str, draft: str, folder: StepFolder) -> None:
    """The outputs into the folder, where they are read as those of a local command."""
    found = await sealed_outputs(resources.store, prefix, draft)
    assert found is not None
    for name, pieces in found.items():
        with room(), (folder.outputs / name).open("xb") as file:
            for key, known in pieces:
                folder.take(await resources.store.size(key) or 0)
                digest = hashlib.sha256()
                async for chunk in resources.store.stream(key):
                    digest.update(chunk)
                    await asyncio.to_thread(file.write, chunk)
                if known is not None and digest.hexdigest() != known:
                    raise PermanentRunnerError(f"'{key}' is not what the step wrote.", code="file_changed")
