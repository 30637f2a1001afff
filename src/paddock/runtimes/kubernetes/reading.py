"""A pod as what a runtime finds. What its reasons mean is `failures`' business."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

from paddock.jobs.model import JsonObject
from paddock.runtimes.diagnosis import Diagnosis
from paddock.runtimes.kubernetes import facts, failures
from paddock.runtimes.kubernetes.client import Object
from paddock.runtimes.kubernetes.manifest import CONTAINER, GENERATION, INSTANCE, PORT
from paddock.runtimes.kubernetes.objects import ContainerStatus, Event, Pod
from paddock.runtimes.runtime import Address, Found, State, Waiting, Why

SCHEDULE, SCHEDULE_WITH_NEW_NODE, START = timedelta(seconds=120), timedelta(minutes=10), timedelta(minutes=5)
SETTLE = timedelta(seconds=60)
DISRUPTIONS = frozenset({"evicted", "preempted", "node_lost", "node_shutdown", "kubelet_rejected"})
ENDED = ("Succeeded", "Failed")
MOST_EVENTS, MOST_TEXT = 50, 1_000


def found_of(read: Object, events: Sequence[Object] | None = None) -> Found | None:
    """None: it is no pod of an instance. `events` are there where it was looked at closely."""
    pod = cast(Pod, read)
    metadata = pod.get("metadata", {})
    labels = metadata.get("labels", {})
    try:
        instance, generation = UUID(labels[INSTANCE]), UUID(labels[GENERATION])
    except (KeyError, ValueError):
        return None
    told = cast(Sequence[Event], events or ())
    diagnosis = failures.diagnose(facts.of_pod(pod, main=CONTAINER, events=told))
    state = state_of(pod, diagnosis)
    return Found(
        name=metadata["name"],
        uid=metadata["uid"],
        instance=instance,
        generation=generation,
        state=state,
        made_at=moment(metadata["creationTimestamp"]),
        address=_address(pod) if state == "up" else None,
        why=_why(diagnosis) if state == "ended" else None,
        phase=_phase(pod, state),
        waiting=_waiting(pod, told) if state == "starting" else None,
        diagnosis=diagnosis,
        evidence=None if events is None else _evidence(pod, told),
    )


def state_of(pod: Pod, diagnosis: Diagnosis | None) -> State:
    """One that somebody deletes is not ended before it is gone, whatever its phase says meanwhile; only what Kubernetes itself
    takes away is, since a node that is lost never confirms."""
    status = pod.get("status", {})
    phase = status.get("phase", "Unknown")
    if is_deleted(pod):
        return "ended" if diagnosis is not None and diagnosis.category in DISRUPTIONS else "unknown"
    if phase in ENDED:
        return "ended"
    if phase == "Pending":
        return "starting"
    if phase != "Running":
        return "unknown"
    nothing: ContainerStatus = {}
    main = next((one for one in status.get("containerStatuses", []) if one.get("name") == CONTAINER), nothing)
    up = "running" in main.get("state", {}) and main.get("started", True) and _address(pod) is not None
    return "up" if up else "starting"


def _phase(pod: Pod, state: State) -> str:
    """One that was taken away keeps the phase it had where nobody can confirm its end: it is not running for that."""
    phase = pod.get("status", {}).get("phase", "Unknown")
    return phase if state != "ended" or phase in ENDED else "Unknown"


def is_deleted(pod: Pod) -> bool:
    return pod.get("metadata", {}).get("deletionTimestamp") is not None


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _address(pod: Pod) -> Address | None:
    host = pod.get("status", {}).get("podIP")
    return Address(host, PORT) if host else None


def _why(diagnosis: Diagnosis | None) -> Why:
    if diagnosis is None:
        return "failed"  # it ended well, which no instance does by itself
    if diagnosis.category == "out_of_memory":
        return "out_of_memory"
    return "disrupted" if diagnosis.category in DISRUPTIONS else "failed"


def _waiting(pod: Pod, events: Sequence[Event]) -> Waiting | None:
    told = failures.waiting(pod, events, main=CONTAINER)
    if told is None:
        return None
    limits = {None: None, "schedule": SCHEDULE_WITH_NEW_NODE if told.adds_node else SCHEDULE, "start": START}
    return Waiting(told.words, told.clock, limits[told.clock])


def _evidence(pod: Pod, events: Sequence[Event]) -> JsonObject:
    in_order = sorted(events, key=lambda event: _at(event) or "")
    return {
        "node": pod.get("spec", {}).get("nodeName"),
        "status": pod.get("status", {}),
        "events": [
            {
                "at": _at(event),
                "type": event.get("type"),
                "reason": event.get("reason"),
                "message": event.get("message", "")[:MOST_TEXT],
                "count": event.get("count", 1),
            }
            for event in in_order[-MOST_EVENTS:]
        ],
    }


def _at(event: Event) -> str | None:
    return event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp")
