"""What a failure on Kubernetes means: the one place that knows its reasons and texts.

`diagnose` takes facts in the order of `facts` and judges the first that tells of a failure. `_category` says which category
a fact belongs to, by its status or reason first, and by its text where Kubernetes tells no other way; `categories` says what
becomes of each. Before the main container started no failure is the
user's and none spends the user's budget; a container that Paddock put beside the main one is the platform's too.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from paddock.runtimes.diagnosis import Clock, Diagnosis
from paddock.runtimes.kubernetes.categories import RULES
from paddock.runtimes.kubernetes.errors import ApiError
from paddock.runtimes.kubernetes.facts import Fact, has_started, of_error
from paddock.runtimes.kubernetes.metrics import kubernetes_metrics
from paddock.runtimes.kubernetes.objects import Event, Pod

MOST_WORDS = 1_000
# What an exit code says by agreement; others are whatever the program means by them.
TRY_LATER, BAD_INPUT = 75, 64
KILLED_CODES = frozenset({137, 143})
NOT_STARTED_CODES = frozenset({126, 127})


# By the text of an answer or of a Job's FailedCreate: the first that fits. What a webhook says may hold any words, so it
# stands first.
TEXTS: Final[Sequence[tuple[str, str]]] = (
    (r"admission webhook .* denied the request|ValidatingAdmissionPolicy .* denied request", "admission_denied"),
    (r"failed calling webhook", "webhook_unavailable"),
    (r"exceeded quota", "quota_exceeded"),
    (r"failed quota: .*must specify", "quota_needs_requests"),
    (r"violates PodSecurity", "pod_security"),
    (r"because it is being terminated", "namespace_terminating"),
    (r"didn't have enough allocatable resources", "no_room"),
    (r"error looking up service account|no PriorityClass with name|RuntimeClass .* not found", "config_missing"),
    (r"(maximum|minimum) \S+ usage per |limit to request ratio per ", "admission_denied"),
    (r" cannot \S+ resource ", "forbidden"),
)
# The text of an event has no status beside it.
EVENT_TEXTS: Final = (
    *TEXTS,
    (r'namespaces? "[^"]*" not found', "namespace_missing"),
    (r" is invalid: ", "invalid_spec"),
    (r" is forbidden: ", "forbidden"),
    (r"Internal error|timeout|timed out|connection refused|connection reset", "api_unavailable"),
)
OF_STATUS: Final = {
    400: "invalid_spec",
    401: "unauthorized",
    403: "forbidden",
    408: "api_unavailable",
    409: "api_unavailable",
    410: "api_unavailable",
    422: "invalid_spec",
    429: "throttled",
}
OF_DISRUPTION: Final = {
    "PreemptionByScheduler": "preempted",
    "DeletionByTaintManager": "node_lost",
    "DeletionByPodGC": "node_lost",
    "EvictionByEvictionAPI": "evicted",
    "TerminationByKubelet": "evicted",
}
OF_POD: Final = {
    "Evicted": "evicted",
    "Preempting": "preempted",
    "NodeLost": "node_lost",
    "NodeShutdown": "node_shutdown",
    "Shutdown": "node_shutdown",
    "Terminated": "node_shutdown",
    "NodeAffinity": "kubelet_rejected",
    "UnexpectedAdmissionError": "kubelet_rejected",
    "DeadlineExceeded": "deadline_exceeded",
}
OF_WAITING: Final = {
    "ErrImagePull": "image_unavailable",
    "ImagePullBackOff": "image_unavailable",
    "InvalidImageName": "image_unavailable",
    "ErrImageNeverPull": "image_unavailable",
    "ImageInspectError": "image_unavailable",
    "SignatureValidationFailed": "image_unavailable",
    "RegistryUnavailable": "image_pull_slow",
    "CreateContainerConfigError": "config_missing",
    "CreateContainerError": "container_refused",
    "RunContainerError": "container_refused",
    "StartError": "container_refused",
    "CreatePodSandboxError": "volume_or_network",
}
# A container that is on its way; any other reason is one that a newer kubelet made up.
ON_ITS_WAY: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
OF_ENDED: Final = {
    "OOMKilled": "out_of_memory",
    "StartError": "container_refused",
    "ContainerCannotRun": "container_refused",
    "RunContainerError": "container_refused",
    "ContainerStatusUnknown": "node_lost",
}
OF_EVENT: Final = {
    "FailedMount": "volume_or_network",
    "FailedAttachVolume": "volume_or_network",
    "FailedMapVolume": "volume_or_network",
    "FailedCreatePodSandBox": "volume_or_network",
    "NetworkNotReady": "volume_or_network",
}
OWN_STORAGE = re.compile(
    r"ephemeral local storage usage exceeds|exceeded its local ephemeral storage limit|^Usage of EmptyDir volume"
)
SLOW_PULL = re.compile(
    r"pull QPS exceeded|rate.?limit|too ?many ?requests|account limit|time.?out|timed out|deadline exceeded|temporarily"
    r"|service unavailable|bad gateway|internal server error|connection (refused|reset)|unexpected EOF"
    r"|(status|code|http)\D{0,12}(429|50[0234])",
    re.IGNORECASE,
)
ADDS_A_NODE: Final = frozenset({"TriggeredScaleUp", "Nominated"})


def diagnose(
    facts: Iterable[Fact], *, asked: bool = False, before: Mapping[str, int] = MappingProxyType({})
) -> Diagnosis | None:
    """None: nothing failed, or it ended because we `asked`. `before` says how often each category came already. A diagnosis
    with a `clock` is one only once that clock is over: until then it is what the object waits for."""
    if asked:
        return None
    for fact in facts:
        if category := _category(fact):
            return _judge(category, fact, before.get(category, 0))
    return None


def of_refusal(problem: ApiError, about: str, *, before: Mapping[str, int] = MappingProxyType({})) -> Diagnosis:
    """What it means that the API server did not do as it was asked."""
    fact = of_error(problem.code, problem.status, verb=problem.verb, about=about, message=problem.message)
    return _judge(_category(fact) or "unknown", fact, before.get(_category(fact) or "unknown", 0))


def count(diagnosis: Diagnosis) -> None:
    """Once for each failure that something followed from."""
    kubernetes_metrics().failures.labels(diagnosis.category).inc()


def _judge(category: str, fact: Fact, before: int) -> Diagnosis:
    rule = RULES[category]
    verdict, budget, mended_by = rule.verdict, rule.budget, rule.mended_by
    if category == "exit_code" and fact.exit_code == TRY_LATER:
        verdict, budget = "transient", "work"
    if rule.times is not None and before >= rule.times:
        verdict = "permanent"
    if fact.ours or not fact.started:
        budget = "cluster"
        mended_by = "operator"
        # A failed container of ours is no reason to stop: what it speaks to may come back.
        if fact.source == "ended" and category in ("exit_code", "killed", "out_of_memory"):
            verdict = "transient"
    clock: Clock | None = None if fact.source in ("api", "ended", "job") else rule.clock
    if fact.source == "waiting" and category == "unknown":
        clock = "start"
    return Diagnosis(
        category=category,
        verdict=verdict,
        mended_by=mended_by if verdict == "permanent" else "paddock",
        message=_sentence(rule.message, fact),
        hint=rule.hint,
        budget=budget,
        clock=clock,
        words=_words(fact),
        object=fact.object,
        container=fact.container,
        node=fact.node,
        exit_code=fact.exit_code,
    )


def _sentence(message: str, fact: Fact) -> str:
    meanings = {TRY_LATER: ": it asks to be tried later", BAD_INPUT: ": it says that its input is bad"}
    said = message.format(
        object=fact.object,
        container=fact.container or "of it",
        exit_code=fact.exit_code,
        meaning=meanings.get(fact.exit_code or 0, ""),
        fields=f" ({', '.join(fact.fields[:5])})" if fact.fields else "",
    )
    return said[0].upper() + said[1:]


def _words(fact: Fact) -> str:
    """The cluster's own, on one line. They may hold what a user wrote: they are shown, and never obeyed."""
    told = ": ".join(part for part in (fact.reason, fact.message) if part)
    return " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", told).split())[:MOST_WORDS]


def _category(fact: Fact) -> str | None:
    """None: nothing failed, or another fact tells better."""
    match fact.source:
        case "api":
            return _of_answer(fact)
        case "disruption":
            return _of_disruption(fact)
        case "pod":
            return _of_pod_reason(fact)
        case "waiting":
            return _of_waiting(fact)
        case "ended":
            return _of_ended(fact)
        case "condition":
            return _of_scheduling(fact)
        case "job":
            return _of_job(fact)
        case "event":
            return _of_event(fact)
        case "gone":
            return "vanished"
        case "late":
            return "deadline_exceeded"
        case "rejected":
            return "kubelet_rejected"
        case "failed":
            return "unknown"


def _by_text(texts: Iterable[tuple[str, str]], message: str) -> str | None:
    return next((category for pattern, category in texts if re.search(pattern, message)), None)


def _of_answer(fact: Fact) -> str | None:
    if fact.status is None:
        return "api_unavailable"
    if fact.status == 404:
        if fact.verb == "delete":
            return None
        return "namespace_missing" if fact.verb == "create" else "vanished"
    if fact.status == 409 and fact.reason == "AlreadyExists":
        return "unknown"
    if fact.status != 401 and fact.status != 429 and (category := _by_text(TEXTS, fact.message)):
        return category
    if fact.status >= 500:
        return "api_unavailable"
    return OF_STATUS.get(fact.status, "unknown")


def _of_disruption(fact: Fact) -> str:
    if OWN_STORAGE.search(fact.message):
        return "own_storage_exceeded"
    if fact.reason == "TerminationByKubelet":
        if "shutdown" in fact.message:
            return "node_shutdown"
        if "critical pod" in fact.message:
            return "preempted"
    return OF_DISRUPTION.get(fact.reason, "evicted")


def _of_pod_reason(fact: Fact) -> str | None:
    if OWN_STORAGE.search(fact.message):
        return "own_storage_exceeded"
    if fact.reason.startswith("OutOf"):
        return "kubelet_rejected"
    category = OF_POD.get(fact.reason)
    return "no_room" if category == "deadline_exceeded" and not fact.started else category


def _of_waiting(fact: Fact) -> str | None:
    if fact.reason in ON_ITS_WAY:
        return None
    category = OF_WAITING.get(fact.reason, "unknown")
    if fact.reason in ("ErrImagePull", "ImagePullBackOff") and SLOW_PULL.search(fact.message):
        return "image_pull_slow"
    return category


def _of_ended(fact: Fact) -> str:
    if category := OF_ENDED.get(fact.reason):
        return category
    if fact.exit_code in NOT_STARTED_CODES:
        return "container_refused"
    return "killed" if fact.exit_code in KILLED_CODES else "exit_code"


def _of_scheduling(fact: Fact) -> str | None:
    """A gate is no failure: whoever set it takes it off."""
    if fact.reason == "SchedulingGated":
        return None
    short = "Insufficient " in fact.message or "Too many pods" in fact.message
    by_rule = any(
        text in fact.message for text in ("node affinity/selector", "untolerated taint", "node(s) were unschedulable")
    )
    if "No preemption victims found" in fact.message:
        return "no_room"
    if "Preemption is not helpful" in fact.message:
        return "too_large" if short else "no_matching_node"
    return "no_matching_node" if by_rule and not short else "no_room"


def _of_job(fact: Fact) -> str:
    """Its pod tells better, where there is one: this is asked when the pod told nothing."""
    if fact.reason == "DeadlineExceeded":
        return "deadline_exceeded" if fact.started else "no_room"
    return "vanished" if fact.reason == "BackoffLimitExceeded" else "unknown"


def _of_event(fact: Fact) -> str | None:
    if fact.reason == "FailedCreate":
        return _by_text(EVENT_TEXTS, fact.message) or "unknown"
    return OF_EVENT.get(fact.reason)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a pod that does not run yet waits for, in words, and which clock counts meanwhile (None: none does)."""

    words: str
    clock: Clock | None
    # A node is being added for it: the schedule clock is longer.
    adds_node: bool = False


def waiting(pod: Pod, events: Sequence[Event] = (), *, main: str | None = None) -> Waiting | None:
    """None: its main container ran, or the pod is over."""
    status = pod.get("status", {})
    if status.get("phase") in ("Succeeded", "Failed") or has_started(pod, main):
        return None
    scheduled = {one.get("type"): one for one in status.get("conditions", [])}.get("PodScheduled", {})
    if scheduled.get("reason") == "SchedulingGated":
        return Waiting("a scheduling gate of the cluster", None)
    if not pod.get("spec", {}).get("nodeName"):
        adds = bool(status.get("nominatedNodeName")) or any(event.get("reason") in ADDS_A_NODE for event in events)
        said = " ".join(scheduled.get("message", "").split())[:MOST_WORDS]
        return Waiting(
            "a node that is being added" if adds else f"room on a node{f' ({said})' if said else ''}", "schedule", adds
        )
    return Waiting(_what_starts(pod, events), "start")


def _what_starts(pod: Pod, events: Sequence[Event]) -> str:
    node = pod.get("spec", {}).get("nodeName")
    reasons = [event.get("reason") for event in events]
    if "Pulling" in reasons and "Pulled" not in reasons:
        return f"its image on node {node}"
    return f"its container on node {node}"
