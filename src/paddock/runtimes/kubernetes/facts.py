"""What the cluster says about one object of ours, put in the order in which it is to be judged. Nothing here looks at what a
reason or a message says: `failures` does.

The order: what Kubernetes itself calls a disruption; the pod's own reason; containers before the main one; the main one,
waiting or ended; the others; conditions; the Job; events.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from paddock.runtimes.kubernetes.objects import ContainerStatus, Event, Job, Metadata, Pod, Status

Source = Literal[
    "api", "disruption", "pod", "waiting", "ended", "condition", "job", "event", "gone", "late", "rejected", "failed"
]
# A container that never ran is said to have started then.
NEVER = ("0001-", "1970-01-01T00:00:00")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    source: Source
    # As "Pod namespace/name".
    object: str
    phase: str = ""
    reason: str = ""
    message: str = ""
    # Of an answer of the API: its HTTP status (None: there was no answer), what was asked, and the fields it names.
    status: int | None = None
    verb: str = ""
    fields: tuple[str, ...] = ()
    exit_code: int | None = None
    container: str = ""
    # The container is one that Paddock put beside the main one.
    ours: bool = False
    node: str = ""
    # The main container ran at some time.
    started: bool = False


def named(kind: str, metadata: Metadata) -> str:
    return f"{kind} {metadata.get('namespace', '')}/{metadata.get('name') or metadata.get('generateName', '')}"


def main_of(pod: Pod) -> str:
    containers = pod.get("spec", {}).get("containers") or [{}]
    return str(containers[0].get("name", ""))


def has_started(pod: Pod, main: str | None = None) -> bool:
    """Whether the main container ran, or runs."""
    main = main_of(pod) if main is None else main
    status = _by_name(pod, main).get(main, {})
    for state in (status.get("state", {}), status.get("lastState", {})):
        began = state.get("terminated", {}).get("startedAt")
        if "running" in state or (began and not began.startswith(NEVER)):
            return True
    return False


def began_at(pod: Pod, main: str) -> str | None:
    """Since when the main container runs; None: it does not."""
    return _by_name(pod, main).get(main, {}).get("state", {}).get("running", {}).get("startedAt")


def scheduled_at(pod: Pod) -> str | None:
    found = {one.get("type"): one for one in pod.get("status", {}).get("conditions", [])}.get("PodScheduled", {})
    return found.get("lastTransitionTime") if found.get("status") == "True" else None


def of_pod(
    pod: Pod,
    *,
    main: str | None = None,
    ours: Collection[str] = (),
    events: Sequence[Event] = (),
    started: bool = False,
) -> list[Fact]:
    """`main` is the first container unless it is named; `ours` are those that Paddock put beside it; `started` is what
    somebody saw earlier. Events count only as long as the main container did not start: they stay when all is well again."""
    main = main_of(pod) if main is None else main
    started = started or has_started(pod, main)
    status = pod.get("status", {})
    about: dict[str, Any] = {
        "object": named("Pod", pod.get("metadata", {})),
        "phase": status.get("phase", ""),
        "node": str(pod.get("spec", {}).get("nodeName", "")),
        "started": started,
    }
    found = _of_conditions(pod, "disruption", "DisruptionTarget", "True", about)
    if status.get("reason"):
        found.append(Fact(source="pod", reason=status["reason"], message=status.get("message", ""), **about))
    found += _of_containers(pod, main, ours, about)
    found += _of_conditions(pod, "condition", "PodScheduled", "False", about)
    if not started:
        found += [of_event(event, about["object"], node=about["node"]) for event in events if _is_warning(event)]
    if status.get("phase") == "Failed":
        # Whatever it was, if nothing above tells. Its node made no container for one that it rejected.
        source: Source = "failed" if _by_name(pod, main) else "rejected"
        found.append(Fact(source=source, message=status.get("message", ""), **about))
    return found


def _of_conditions(pod: Pod, source: Source, type: str, status: str, about: dict[str, Any]) -> list[Fact]:
    return [
        Fact(source=source, reason=condition.get("reason", ""), message=condition.get("message", ""), **about)
        for condition in pod.get("status", {}).get("conditions", [])
        if condition.get("type") == type and condition.get("status") == status
    ]


def _of_containers(pod: Pod, main: str, ours: Collection[str], about: dict[str, Any]) -> Iterator[Fact]:
    for name, status in _by_name(pod, main).items():
        state = status.get("state", {})
        about_container = {**about, "container": name, "ours": name != main and name in ours}
        if waiting := state.get("waiting"):
            yield Fact(
                source="waiting",
                reason=waiting.get("reason", ""),
                message=waiting.get("message", ""),
                **about_container,
            )
        elif (ended := state.get("terminated")) and ended.get("exitCode", 0) != 0:
            yield Fact(
                source="ended",
                reason=ended.get("reason", ""),
                message=ended.get("message", ""),
                exit_code=ended.get("exitCode"),
                **about_container,
            )


def _by_name(pod: Pod, main: str) -> dict[str, ContainerStatus]:
    """Init containers in the order in which they run; of the others, which are told by name, the main one first."""
    status = pod.get("status", {})
    others = sorted(status.get("containerStatuses", []), key=lambda one: one.get("name") != main)
    return {one.get("name", ""): one for one in (*status.get("initContainerStatuses", []), *others)}


def of_job(job: Job, *, events: Sequence[Event] = (), started: bool = False) -> list[Fact]:
    """What the Job says itself. Its events tell why it has no pod; give them only where it has none."""
    name = named("Job", job.get("metadata", {}))
    found = [
        Fact(
            source="job",
            object=name,
            reason=condition.get("reason", ""),
            message=condition.get("message", ""),
            started=started,
        )
        for condition in job.get("status", {}).get("conditions", [])
        if condition.get("type") in ("Failed", "FailureTarget") and condition.get("status") == "True"
    ]
    return found + [of_event(event, name) for event in events if _is_warning(event)]


def of_event(event: Event, about: str, *, node: str = "") -> Fact:
    return Fact(
        source="event", object=about, reason=event.get("reason", ""), message=event.get("message", ""), node=node
    )


def _is_warning(event: Event) -> bool:
    return event.get("type") == "Warning"


def of_error(status: int | None, answer: Status | None, *, verb: str, about: str, message: str = "") -> Fact:
    """An answer that is no success; `status` None and a `message` of ours: there was no answer."""
    said = answer or {}
    causes = said.get("details", {}).get("causes") or []
    return Fact(
        source="api",
        object=about,
        status=status,
        verb=verb,
        reason=said.get("reason", ""),
        message=said.get("message") or message,
        fields=tuple(_unique(cause["field"] for cause in causes if cause.get("field"))),
    )


def gone(about: str, *, started: bool = False, node: str = "") -> Fact:
    """It was there, nobody of ours deleted it, and a GET says that there is none."""
    return Fact(source="gone", object=about, started=started, node=node)


def late(about: str, container: str) -> Fact:
    """Its time is over by our clock, and it still runs."""
    return Fact(source="late", object=about, container=container, started=True)


def _unique(names: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(names)
