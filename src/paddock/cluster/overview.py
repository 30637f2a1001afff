"""Every pod and Job of ours with what is wrong with it, and what has no row or no pod."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

from paddock.config import Config
from paddock.db.pool import Database
from paddock.ingest.settings import IngestSettings
from paddock.instances import watching
from paddock.instances.running_on import installation_of
from paddock.jobs.errors import InfrastructureError
from paddock.runtimes.diagnosis import Diagnosis
from paddock.runtimes.kubernetes import facts, failures
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.errors import ApiError
from paddock.runtimes.kubernetes.installation import HINT, Installation, Standing
from paddock.runtimes.kubernetes.job_manifest import JOB
from paddock.runtimes.kubernetes.jobs import NO_POD_AFTER
from paddock.runtimes.kubernetes.manifest import INSTALLATION, INSTANCE, OWNER
from paddock.runtimes.kubernetes.objects import Event, Job, Pod
from paddock.runtimes.kubernetes.reading import moment
from paddock.runtimes.kubernetes.resources import EVENTS, JOBS, PODS

MOST_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class Row:
    """`kind` is Pod or Job; `state` a word; `told` what it waits for, or what is wrong."""

    kind: str
    name: str
    namespace: str
    made_at: datetime
    state: str
    instance: str | None
    # The job of ours that it runs for.
    job: str | None
    owner: str
    node: str
    told: str = ""
    diagnosis: Diagnosis | None = None
    # An instance names it, or it is no instance's.
    has_row: bool = True
    # A Job that should have a pod by now.
    has_no_pod: bool = False

    @property
    def is_wrong(self) -> bool:
        return self.diagnosis is not None or self.has_no_pod


@dataclass(frozen=True, slots=True)
class Missing:
    """An instance whose pod is not there."""

    id: UUID
    name: str
    owner: str
    status: str
    pod_name: str


@dataclass(frozen=True, slots=True)
class Overview:
    server: str
    version: str
    standing: Standing | None
    rows: Sequence[Row]
    missing: Sequence[Missing]
    # What is wrong now, and what instances failed of, by category.
    failures: Mapping[str, int]
    # Why the cluster, or the namespace of steps in it, could not be looked at.
    problem: Mapping[str, str | None] | None = None


async def look(db: Database, config: Config) -> Overview | None:
    """None: nothing of ours runs on a cluster."""
    installation = installation_of(config)
    if installation is None:
        return None
    running = await watching.running_pods(db, MOST_ROWS)
    counts = Counter(await watching.failures_by_category(db))
    server = installation.client.access.server
    try:
        version = str((await installation.client.version()).get("gitVersion", ""))
        standing = await installation.look()
        rows, unseen = await _rows(db, config, installation, standing)
    except (ApiError, InfrastructureError) as problem:
        return Overview(server, "", None, (), (), counts, _problem_json(problem))
    there = {row.name for row in rows}
    missing = [
        Missing(row["id"], row["name"], row["owner"], row["status"], row["pod_name"])
        for row in running
        if row["pod_name"] not in there
    ]
    # A namespace that is not ours tells nothing of what is missing.
    missing = missing if standing.mismatch is None else []
    counts.update(row.diagnosis.category for row in rows if row.diagnosis is not None)
    return Overview(server, version, standing, rows, missing, counts, unseen)


def _problem_json(
    problem: ApiError | InfrastructureError, about: str = "the cluster's objects"
) -> dict[str, str | None]:
    if isinstance(problem, ApiError):
        diagnosis = failures.of_refusal(problem, about)
        return {"code": diagnosis.category, "message": diagnosis.message, "hint": diagnosis.hint}
    return {"code": problem.code, "message": problem.message, "hint": problem.hint}


async def _rows(
    db: Database, config: Config, installation: Installation, standing: Standing
) -> tuple[list[Row], Mapping[str, str | None] | None]:
    """And why the namespace of steps could not be looked at, where some run there."""
    if standing.bound is None:
        return [], None
    labels, unseen = {INSTALLATION: standing.bound.id}, None
    rows = await _objects(db, installation.client, installation.namespace, labels)
    ingest = config.of(IngestSettings)
    if ingest.kubernetes_ingest_namespace != installation.namespace:
        try:
            rows += await _objects(db, installation.client, ingest.kubernetes_ingest_namespace, labels)
        except ApiError as problem:
            # Where no step ever runs nobody made that namespace, or the Role in it.
            if ingest.sources or problem.code not in (403, 404):
                unseen = _problem_json(problem, f"what runs in {ingest.kubernetes_ingest_namespace}")
    return sorted(rows, key=lambda row: (not row.is_wrong, row.name)), unseen


async def _objects(db: Database, client: Kubernetes, namespace: str, labels: Mapping[str, str]) -> list[Row]:
    pods = cast(Sequence[Pod], await client.list(PODS, namespace, labels=labels))
    jobs = cast(Sequence[Job], await client.list(JOBS, namespace, labels=labels))
    # After the list: a row names its pod before that is made.
    named = await watching.named_pods(db, [_name(pod) for pod in pods])
    owners = {one["uid"] for pod in pods for one in pod.get("metadata", {}).get("ownerReferences") or ()}
    waiting = [job for job in jobs if _uid(job) not in owners and not _is_over(job)]
    silent = any(_age(job) > NO_POD_AFTER for job in waiting) or any(map(_stands_still, pods))
    warnings = await _warnings(client, namespace) if silent else {}
    return [
        *(_pod(pod, namespace, named, warnings.get(_uid(pod), ())) for pod in pods),
        *(_job(job, namespace, job in waiting, warnings.get(_uid(job), ())) for job in jobs),
    ]


async def _warnings(client: Kubernetes, namespace: str) -> Mapping[str, Sequence[Event]]:
    """By the object they are of. A Job without a pod, and a pod that its node does not begin, say nowhere else why."""
    try:
        found = cast(Sequence[Event], await client.list(EVENTS, namespace, fields={"type": "Warning"}))
    except ApiError:
        return {}  # they explain; without them it is as it is
    by_object: dict[str, list[Event]] = {}
    for event in found:
        by_object.setdefault(event.get("involvedObject", {}).get("uid", ""), []).append(event)
    return by_object


def _uid(one: Pod | Job) -> str:
    return one.get("metadata", {}).get("uid", "")


def _name(one: Pod | Job) -> str:
    return one.get("metadata", {}).get("name", "")


def _age(one: Pod | Job) -> timedelta:
    return datetime.now(UTC) - moment(one.get("metadata", {}).get("creationTimestamp", ""))


def _stands_still(pod: Pod) -> bool:
    waits = failures.waiting(pod)
    return waits is not None and waits.clock == "start"


def _is_over(job: Job) -> bool:
    return (
        bool(job.get("status", {}).get("succeeded")) or failures.diagnose(facts.of_job(job, started=True)) is not None
    )


def _pod(pod: Pod, namespace: str, named: Set[str], warnings: Sequence[Event]) -> Row:
    metadata = pod.get("metadata", {})
    labels, name = metadata.get("labels", {}), metadata.get("name", "")
    diagnosis, waits = failures.diagnose(facts.of_pod(pod, events=warnings)), failures.waiting(pod)
    state = "ending" if "deletionTimestamp" in metadata else pod.get("status", {}).get("phase", "Unknown").lower()
    told = f"waits for {waits.words}" if waits is not None else ""
    return Row(
        kind="Pod",
        name=name,
        namespace=namespace,
        made_at=moment(metadata.get("creationTimestamp", "")),
        state=state,
        instance=labels.get(INSTANCE),
        job=labels.get(JOB),
        owner=metadata.get("annotations", {}).get(OWNER, ""),
        node=str(pod.get("spec", {}).get("nodeName", "")),
        told=diagnosis.message if diagnosis is not None else told,
        diagnosis=diagnosis,
        has_row=INSTANCE not in labels or name in named,
    )


def _job(job: Job, namespace: str, waits: bool, warnings: Sequence[Event]) -> Row:
    """`waits`: it is not over and has no pod."""
    metadata, status = job.get("metadata", {}), job.get("status", {})
    # Whether it ever began is known where its pod is seen.
    failed = failures.diagnose(facts.of_job(job, started=True))
    going_on = "waiting" if waits else "running"
    state = "failed" if failed is not None else "completed" if status.get("succeeded") else going_on
    diagnosis, told = failed, "" if failed is None else failed.message
    late = waits and _age(job) > NO_POD_AFTER
    if late:
        diagnosis = failures.diagnose(facts.of_job(job, events=warnings))
        told = "It has no pod, and nothing says why." if diagnosis is None else diagnosis.message
    elif waits:
        told = "waits for its pod"
    return Row(
        kind="Job",
        name=metadata.get("name", ""),
        namespace=namespace,
        made_at=moment(metadata.get("creationTimestamp", "")),
        state="ending" if "deletionTimestamp" in metadata else state,
        instance=None,
        job=metadata.get("labels", {}).get(JOB),
        owner="",
        node="",
        told=told,
        diagnosis=diagnosis,
        has_no_pod=late,
    )


def as_json(found: Overview | None) -> dict[str, Any]:
    if found is None:
        return {"runtime": "none", "objects": [], "without_row": [], "without_pod": [], "failures": {}}
    standing = found.standing
    return {
        "runtime": "kubernetes",
        "server": found.server,
        "version": found.version,
        "problem": found.problem,
        "installation": None if standing is None else standing_json(standing),
        "objects": [_row_json(row) for row in found.rows],
        "without_row": [row.name for row in found.rows if not row.has_row],
        "without_pod": [
            {"id": one.id, "name": one.name, "owner": one.owner, "status": one.status, "pod_name": one.pod_name}
            for one in found.missing
        ],
        "failures": dict(sorted(found.failures.items())),
    }


def standing_json(standing: Standing) -> dict[str, Any]:
    bound = standing.bound
    return {
        "id": None if bound is None else bound.id,
        "namespace": standing.namespace,
        "home": standing.home,
        "bound_at": None if bound is None else bound.bound_at,
        "bound_by": None if bound is None else bound.bound_by,
        "mismatch": standing.mismatch,
        "hint": None if standing.mismatch is None else HINT,
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "name": row.name,
        "namespace": row.namespace,
        "instance_id": row.instance,
        "job_id": row.job,
        "owner": row.owner,
        "node": row.node,
        "created_at": row.made_at,
        "state": row.state,
        "told": row.told,
        "diagnosis": None if row.diagnosis is None else row.diagnosis.as_json(),
    }
