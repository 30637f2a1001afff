"""What `paddock why` says of the pod behind a start, a growth or a stop: where it is, and what the cluster says of it."""

from uuid import UUID

from paddock.api.around import Around
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.instances import keeping, model, pod_now
from paddock.instances.service import may_change
from paddock.jobs.model import Job, JsonObject
from paddock.runtimes.diagnosis import who_mends

KINDS = ("instance_start", "instance_grow", "instance_stop")


async def around(plane: ControlPlane, caller: Caller, job: Job) -> list[Around]:
    if job.kind not in KINDS:
        return []
    instance = await model.get(plane.core.db, UUID(job.payload["instance_id"]))
    if instance is None or not may_change(caller, instance):
        return []
    if job.payload.get("generation", str(instance.generation)) != str(instance.generation):
        return []  # another start of it, with another pod
    seen = await pod_now.look(plane.config, instance)
    if seen.problem is not None:
        return [Around(f"Its pod could not be looked at: {seen.problem}")]
    if seen.pod is not None:
        return [_pod_words("Its pod", seen.pod)]
    kept = await keeping.kept(plane.core.db, instance.id)
    return [] if kept is None else [_pod_words("Its last pod", kept)]


def _pod_words(what: str, pod: JsonObject) -> Around:
    node = f"on node {pod['node']}" if pod.get("node") else "on no node"
    sentence = f"{what} {pod['pod_name']} is {pod.get('phase') or 'Unknown'} {node}."
    diagnosis = pod.get("diagnosis")
    if diagnosis is not None:
        words = f" The cluster says: {diagnosis['words']}" if diagnosis.get("words") else ""
        mends = f" Who can mend it: {who}." if (who := who_mends(diagnosis)) else ""
        return Around(
            f"{sentence} {diagnosis['message']}{mends}{words}", [diagnosis["hint"]] if diagnosis["hint"] else []
        )
    waits = f" It waits for {pod['waits_for']}." if pod.get("waits_for") else ""
    warned = next((event for event in reversed(pod["events"]) if event["type"] == "Warning"), None)
    said = "" if warned is None else f" The cluster's last warning is {warned['reason']}: {warned['message']}"
    return Around(f"{sentence}{waits}{said}")
