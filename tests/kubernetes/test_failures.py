"""What each signal of a cluster means: every row of the table, by the words that Kubernetes uses."""

from typing import Any, cast

import pytest

from paddock.jobs.errors import PermanentRunnerError, TransientResourceError, UserMistake
from paddock.runtimes.kubernetes import facts, failures
from paddock.runtimes.kubernetes.categories import CATEGORIES, RULES
from paddock.runtimes.kubernetes.facts import Fact
from paddock.runtimes.kubernetes.objects import Event, Job, Pod

ABOUT = "Pod graph-instances/one"
NO_ROOM = (
    "0/2 nodes are available: 2 Insufficient memory. no new claims to deallocate, preemption: 0/2 nodes are available: "
)


def pod(
    phase: str = "Pending",
    *,
    reason: str = "",
    message: str = "",
    conditions: tuple[tuple[str, str, str, str], ...] = (),
    main: dict[str, Any] | None = None,
    others: tuple[tuple[str, dict[str, Any]], ...] = (),
    init: tuple[tuple[str, dict[str, Any]], ...] = (),
    node: str = "node-1",
) -> Pod:
    """Containers by their state; the main one is called main."""
    shown = [*others, *([("main", main)] if main is not None else [])]
    status = {
        "phase": phase,
        "reason": reason,
        "message": message,
        "conditions": [
            {"type": type, "status": is_so, "reason": why, "message": said} for type, is_so, why, said in conditions
        ],
        "initContainerStatuses": [{"name": name, "state": state} for name, state in init],
        "containerStatuses": [{"name": name, "state": state} for name, state in shown],
    }
    spec = {"nodeName": node, "containers": [{"name": "main"}]}
    return cast(Pod, {"metadata": {"namespace": "graph-instances", "name": "one"}, "spec": spec, "status": status})


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def ended(code: int, reason: str = "Error", began: str = "2026-11-18T09:30:00Z") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": began}}


def unschedulable(message: str, reason: str = "Unschedulable") -> list[Fact]:
    return facts.of_pod(pod(conditions=(("PodScheduled", "False", reason, message),), node=""))


def disrupted(reason: str, message: str = "", status: str = "") -> list[Fact]:
    """With the exit code that a killed process has: what Kubernetes itself says comes first."""
    conditions = (("DisruptionTarget", "True", reason, message),)
    return facts.of_pod(pod("Failed", reason=status, conditions=conditions, main=ended(137)))


def stopped(reason: str, message: str = "") -> list[Fact]:
    return facts.of_pod(pod("Failed", reason=reason, message=message, main=ended(137)))


def answer(
    code: int | None, message: str = "", *, reason: str = "", verb: str = "create", fields: tuple[str, ...] = ()
) -> list[Fact]:
    causes = [{"field": name} for name in fields]
    status = {"code": code or 0, "message": message, "reason": reason, "details": {"causes": causes}}
    return [facts.of_error(code, cast(Any, status), verb=verb, about=ABOUT)]


def event(reason: str, message: str = "") -> Event:
    return {"type": "Warning", "reason": reason, "message": message}


def job(reason: str, *, started: bool = False) -> list[Fact]:
    condition = {"type": "Failed", "status": "True", "reason": reason, "message": "it ended"}
    read = {"metadata": {"namespace": "a", "name": "one-1"}, "status": {"conditions": [condition]}}
    return facts.of_job(cast(Job, read), started=started)


def refused(message: str) -> list[Fact]:
    """A Job whose pod is refused tells only by its events."""
    return facts.of_job({"metadata": {"name": "one-1"}}, events=[event("FailedCreate", f"Error creating: {message}")])


QUOTA = 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'
SECURITY = 'pods "x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'
BACK_OFF = 'Back-off pulling image "r/x:1": ErrImagePull: '
OWN_DISK = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "
WEBHOOK = 'admission webhook "w.example.com" denied the request: '
LOW = "The node was low on resource: memory."
SELECTOR = "1 node(s) didn't match Pod's node affinity/selector."
OWN_VOLUME = 'Usage of EmptyDir volume "data" exceeds the limit "1Mi". '
POLICY = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"
DOWN = 'Internal error occurred: failed calling webhook "w": connection refused'

ROWS: dict[str, list[tuple[list[Fact], str, str]]] = {
    "quota_exceeded": [(answer(403, QUOTA), "transient", "cluster"), (refused(QUOTA), "transient", "cluster")],
    "throttled": [(answer(429, "slow down"), "transient", "cluster")],
    "api_unavailable": [
        (answer(500, "etcdserver: leader changed"), "transient", "cluster"),
        (answer(504), "transient", "cluster"),
        (answer(None, "the line broke"), "transient", "cluster"),
        (answer(409, "the object has been modified", reason="Conflict"), "transient", "cluster"),
    ],
    "webhook_unavailable": [(answer(500, DOWN), "transient", "cluster"), (refused(DOWN), "transient", "cluster")],
    "unauthorized": [(answer(401, "Unauthorized", verb="get"), "transient", "cluster")],
    "forbidden": [
        (answer(403, 'User "u" cannot create resource "pods" in API group ""'), "permanent", "operator"),
        (answer(403, "nobody knows this text"), "permanent", "operator"),
    ],
    "pod_security": [(answer(403, SECURITY), "permanent", "operator"), (refused(SECURITY), "permanent", "operator")],
    "admission_denied": [
        # What a webhook says may sound like anything.
        (answer(403, f"{WEBHOOK}exceeded quota"), "permanent", "operator"),
        (answer(400, f"{WEBHOOK}no"), "permanent", "operator"),
        (answer(422, POLICY), "permanent", "operator"),
        (answer(403, "maximum memory usage per Container is 1Gi, but limit is 2Gi"), "permanent", "operator"),
    ],
    "quota_needs_requests": [(answer(403, "failed quota: q: must specify requests.cpu"), "permanent", "operator")],
    "namespace_terminating": [(answer(403, "in namespace x because it is being terminated"), "permanent", "operator")],
    "namespace_missing": [(answer(404, 'namespaces "x" not found'), "permanent", "operator")],
    "invalid_spec": [
        (answer(400, 'strict decoding error: unknown field "spec.foo"'), "permanent", "operator"),
        (answer(422, "is invalid", fields=("spec.tolerations[0].effect",)), "permanent", "operator"),
    ],
    "no_room": [
        (unschedulable(f"{NO_ROOM}1 No preemption victims found, 1 Preemption is not helpful"), "transient", "cluster"),
        (unschedulable("no nodes available to schedule pods"), "transient", "cluster"),
        (unschedulable("it broke", "SchedulerError"), "transient", "cluster"),
        (job("DeadlineExceeded"), "transient", "cluster"),
        (answer(403, "node didn't have enough allocatable resources", verb="patch"), "transient", "cluster"),
    ],
    "too_large": [(unschedulable(f"{NO_ROOM}2 Preemption is not helpful for scheduling."), "permanent", "operator")],
    "no_matching_node": [
        (unschedulable(f"{SELECTOR} preemption: 1 Preemption is not helpful"), "permanent", "operator"),
        (unschedulable("2 node(s) had untolerated taint(s)"), "permanent", "operator"),
    ],
    "image_pull_slow": [
        (facts.of_pod(pod(main=waiting("ImagePullBackOff", f"{BACK_OFF}toomanyrequests"))), "transient", "cluster"),
        (facts.of_pod(pod(main=waiting("ErrImagePull", "dial tcp: i/o timeout"))), "transient", "cluster"),
        (facts.of_pod(pod(main=waiting("RegistryUnavailable"))), "transient", "cluster"),
    ],
    "image_unavailable": [
        (facts.of_pod(pod(main=waiting("ImagePullBackOff", f"{BACK_OFF}not found"))), "permanent", "operator"),
        *(
            (facts.of_pod(pod(main=waiting(reason))), "permanent", "operator")
            for reason in (
                *("InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "SignatureValidationFailed"),
            )
        ),
    ],
    "config_missing": [
        (
            facts.of_pod(pod(main=waiting("CreateContainerConfigError", 'secret "s" not found'))),
            "permanent",
            "operator",
        ),
        (answer(403, "error looking up service account a/b"), "permanent", "operator"),
    ],
    "container_refused": [
        (facts.of_pod(pod(main=waiting("CreateContainerError"))), "permanent", "operator"),
        (facts.of_pod(pod("Failed", main=ended(128, "StartError", "1970-01-01T00:00:00Z"))), "permanent", "operator"),
        (facts.of_pod(pod("Failed", main=ended(127))), "permanent", "operator"),
    ],
    "volume_or_network": [
        (facts.of_pod(pod(main=waiting("ContainerCreating")), events=[event("FailedMount")]), "transient", "cluster"),
        (facts.of_pod(pod(), events=[event("FailedCreatePodSandBox")]), "transient", "cluster"),
    ],
    "evicted": [
        (disrupted("EvictionByEvictionAPI"), "transient", "cluster"),
        (disrupted("TerminationByKubelet", LOW, "Evicted"), "transient", "cluster"),
        (stopped("Evicted", LOW), "transient", "cluster"),
    ],
    "preempted": [(disrupted("PreemptionByScheduler"), "transient", "cluster")],
    "node_lost": [
        (disrupted("DeletionByTaintManager"), "transient", "cluster"),
        (disrupted("DeletionByPodGC"), "transient", "cluster"),
        (stopped("NodeLost"), "transient", "cluster"),
    ],
    "node_shutdown": [
        (stopped("Terminated", "Pod was terminated in response to imminent node shutdown."), "transient", "cluster"),
        (disrupted("TerminationByKubelet", "in response to imminent node shutdown."), "transient", "cluster"),
    ],
    "kubelet_rejected": [
        *(
            (facts.of_pod(pod("Failed", reason=reason)), "transient", "cluster")
            for reason in (*("OutOfmemory", "OutOfcpu", "NodeAffinity", "UnexpectedAdmissionError", "SomethingNew"),)
        ),
    ],
    "own_storage_exceeded": [
        (stopped("Evicted", OWN_DISK), "permanent", "you"),
        (disrupted("TerminationByKubelet", OWN_VOLUME), "permanent", "you"),
    ],
    "out_of_memory": [(facts.of_pod(pod("Failed", main=ended(137, "OOMKilled"))), "larger", "cluster")],
    "killed": [
        (facts.of_pod(pod("Failed", main=ended(137))), "transient", "work"),
        (facts.of_pod(pod("Failed", main=ended(143))), "transient", "work"),
    ],
    "deadline_exceeded": [
        (job("DeadlineExceeded", started=True), "permanent", "you"),
        ([facts.late(ABOUT, "main")], "permanent", "you"),
    ],
    "exit_code": [
        (facts.of_pod(pod("Failed", main=ended(75))), "transient", "work"),
        (facts.of_pod(pod("Failed", main=ended(64))), "permanent", "you"),
        (facts.of_pod(pod("Failed", main=ended(1))), "permanent", "you"),
    ],
    "vanished": [
        ([facts.gone(ABOUT, started=True)], "transient", "cluster"),
        (answer(404, verb="get"), "transient", "cluster"),
        (job("BackoffLimitExceeded"), "transient", "cluster"),
    ],
    "unknown": [
        (facts.of_pod(pod("Failed", main={"running": {"startedAt": "2026-11-18T09:30:00Z"}})), "transient", "work"),
        (answer(409, "already exists", reason="AlreadyExists"), "transient", "cluster"),
    ],
}


def test_every_category_has_a_signal_here() -> None:
    assert set(ROWS) == set(CATEGORIES)


@pytest.mark.parametrize(
    ("category", "signal", "verdict", "whose"), [(category, *row) for category, rows in ROWS.items() for row in rows]
)
def test_a_signal_means(category: str, signal: list[Fact], verdict: str, whose: str) -> None:
    """`whose`: the budget of what is tried again, and who can mend what is not."""
    found = failures.diagnose(signal)
    assert found is not None
    assert (found.category, found.verdict) == (category, verdict)
    assert whose == (found.mended_by if verdict == "permanent" else found.budget)
    assert found.message[0].isupper()
    assert found.message.endswith(".")
    assert found.hint
    assert "{" not in found.message


def test_what_we_asked_for_is_no_failure() -> None:
    assert failures.diagnose(facts.of_pod(pod("Failed", main=ended(143))), asked=True) is None


@pytest.mark.parametrize(
    "well",
    [
        facts.of_pod(pod(main=waiting("ContainerCreating"))),
        facts.of_pod(pod("Running", main={"running": {"startedAt": "2026-11-18T09:30:00Z"}})),
        facts.of_pod(pod("Succeeded", main=ended(0))),
        unschedulable("Scheduling is blocked due to non-empty scheduling gates", "SchedulingGated"),
        answer(404, verb="delete"),
    ],
)
def test_what_goes_well_or_only_waits_is_no_failure(well: list[Fact]) -> None:
    assert failures.diagnose(well) is None


@pytest.mark.parametrize(
    ("category", "times", "who"), [("unauthorized", 2, "operator"), ("killed", 1, "you"), ("unknown", 3, "operator")]
)
def test_what_may_pass_is_permanent_once_it_came_too_often(category: str, times: int, who: str) -> None:
    signal = ROWS[category][0][0]
    patient = failures.diagnose(signal, before={category: times - 1})
    enough = failures.diagnose(signal, before={category: times})
    assert patient is not None
    assert isinstance(patient.error(), TransientResourceError)
    assert enough is not None
    assert (enough.verdict, enough.mended_by) == ("permanent", who)
    assert isinstance(enough.error(), UserMistake if who == "you" else PermanentRunnerError)


@pytest.mark.parametrize("category", CATEGORIES)
def test_before_the_main_container_started_nothing_is_the_users_fault(category: str) -> None:
    for signal, _, _ in ROWS[category]:
        found = failures.diagnose(signal)
        if found is not None and not any(fact.started for fact in signal):
            assert found.budget == "cluster" or found.verdict != "transient"
            assert found.mended_by != "you"


@pytest.mark.parametrize("state", [ended(1), ended(137), ended(137, "OOMKilled"), ended(64)])
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_failed_container_of_ours_is_the_platforms(where: str, state: dict[str, Any]) -> None:
    if where == "before":
        read = pod("Failed", init=(("fetch", state),), main=waiting("PodInitializing"))
    else:
        read = pod("Failed", init=(("main", ended(0)),), others=(("ship", state),))
    found = failures.diagnose(facts.of_pod(read, main="main", ours={"fetch", "ship"}))
    assert found is not None
    assert (found.verdict, found.budget, found.mended_by) == ("transient", "cluster", "paddock")
    assert found.container in ("fetch", "ship")


def test_the_main_container_is_judged_before_those_beside_it() -> None:
    read = pod("Failed", others=(("ship", ended(1)),), main=ended(64))
    found = failures.diagnose(facts.of_pod(read, main="main", ours={"ship"}))
    assert found is not None
    assert (found.container, found.exit_code) == ("main", 64)


def test_an_old_event_does_not_blame_what_runs() -> None:
    read = pod("Failed", main=ended(1))
    found = failures.diagnose(facts.of_pod(read, events=[event("FailedMount")]))
    assert found is not None
    assert found.category == "exit_code"


def test_what_the_cluster_says_is_shown_on_one_line_and_bounded() -> None:
    found = failures.diagnose(answer(403, "exceeded quota\n\x1b[31m<script>" + "x" * 5_000))
    assert found is not None
    assert "\n" not in found.words
    assert "\x1b" not in found.words
    assert len(found.words) <= failures.MOST_WORDS


def test_a_clock_counts_while_it_may_still_come_right() -> None:
    clocks = {category: found.clock for category, rows in ROWS.items() if (found := failures.diagnose(rows[0][0]))}
    assert {category for category, clock in clocks.items() if clock == "schedule"} == {
        "no_room",
        "too_large",
        "no_matching_node",
    }
    assert {category for category, clock in clocks.items() if clock == "start"} == {
        "image_pull_slow",
        "volume_or_network",
    }
    assert {category for category, clock in clocks.items() if clock == "settle"} == {
        "config_missing",
        "container_refused",
    }


def test_what_a_pod_waits_for_is_said() -> None:
    gated = pod(conditions=(("PodScheduled", "False", "SchedulingGated", "gates"),), node="")
    full = pod(conditions=(("PodScheduled", "False", "Unschedulable", "0/1 nodes"),), node="")
    on_its_node = pod(conditions=(("PodScheduled", "True", "", ""),), main=waiting("ContainerCreating"))
    no_clock, room, start = failures.waiting(gated), failures.waiting(full), failures.waiting(on_its_node)
    added = failures.waiting(full, [{"type": "Normal", "reason": "TriggeredScaleUp"}])
    assert no_clock is not None
    assert no_clock.clock is None
    assert room is not None
    assert (room.clock, room.adds_node) == ("schedule", False)
    assert "0/1 nodes" in room.words
    assert added is not None
    assert added.adds_node
    assert start is not None
    assert (start.clock, "node-1" in start.words) == ("start", True)
    assert failures.waiting(pod("Running", main={"running": {"startedAt": "2026-11-18T09:30:00Z"}})) is None


def test_every_rule_is_a_sentence_with_a_hint() -> None:
    for category, rule in RULES.items():
        assert rule.message.endswith("."), category
        assert rule.hint.endswith("."), category
