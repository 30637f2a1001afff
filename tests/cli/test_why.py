"""What `why` says, as a table: pure, so every standing a job can have is here."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddock.why import Place, Quote, Since, Until, explain

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
ID = "019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7"


def at(**ago: float) -> str:
    return (NOW - timedelta(**ago)).isoformat()


def job(status: str, **facts: Any) -> dict[str, Any]:
    return {"id": ID, "kind": "export", "status": status, "turn_count": 0, "created_at": at(hours=1), **facts}


KIND = {
    "name": "export",
    "internal": False,
    "serial": False,
    "paused": False,
    "offered": True,
    "pending": 1,
    "claimed": 0,
}
WORKER = {
    "worker_id": "w1",
    "session": "s1",
    "live": True,
    "quiet": False,
    "dying": False,
    "kinds": ["export"],
    "running": 1,
    "slots": 10,
    "beat_at": at(seconds=3),
}
RESCUED = {"at": at(minutes=5), "event": "rescued", "worker": "w0", "to": "pending", "reason": "session_died"}
RETRY = {
    "at": at(minutes=1),
    "event": "retry",
    "worker": "w1",
    "to": "pending",
    "error": {"code": "no_nodes", "message": "Trino has no nodes.", "hint": "Wait for the cluster."},
}
DUE = {"due_at": at(seconds=20)}
LATER = {"due_at": (NOW + timedelta(seconds=90)).isoformat()}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    # what: (job, surroundings, what must be said)
    "not due yet": (job("pending", **LATER), {}, ["is not due yet", "in 90 s", "jobs run-now"]),
    "in backoff": (
        job(
            "pending",
            **LATER,
            turn_count=1,
            failure_count=1,
            error_code="no_nodes",
            error_message="Trino has no nodes.",
        ),
        {"timeline": [RETRY], "kinds": [{**KIND, "retry": {"limit": 5}}]},
        ["failed once of 5 that are forgiven", "Trino has no nodes. [no_nodes]", "Wait for the cluster.", "run-now"],
    ),
    "yielded": (job("pending", **LATER, turn_count=2), {}, ["ended a turn and goes on at"]),
    "released": (
        job("pending", **LATER, turn_count=1),
        {"timeline": [{"at": at(seconds=1), "event": "released", "reason": "shutdown", "worker": "w1"}]},
        ["was given back (shutdown)"],
    ),
    "nobody offers it": (
        job("pending", **DUE),
        {"workers": [{**WORKER, "kinds": ["dump"]}], "kinds": [KIND]},
        [
            "no live worker offers the kind 'export'",
            "paddock worker --kinds export",
            "1 live worker offers other kinds",
        ],
    ),
    "nobody offers it, and the caller may not see workers": (
        job("pending", **DUE),
        {"kinds": [{**KIND, "offered": False}]},
        ["no live worker offers the kind 'export'"],
    ),
    "a dead worker does not count": (
        job("pending", **DUE),
        {"workers": [{**WORKER, "live": False}], "kinds": [KIND]},
        ["no live worker offers"],
    ),
    "paused": (
        job("pending", **DUE),
        {"kinds": [{**KIND, "paused": True, "paused_by": "grace", "pause_reason": "disk full"}], "workers": [WORKER]},
        ["grace paused its kind 'export' (disk full)", "paddock kinds resume export"],
    ),
    "quiet workers": (
        job("pending", **DUE),
        {"workers": [{**WORKER, "quiet": True}], "kinds": [KIND]},
        ["is set to claim nothing new", "workers quiet --off"],
    ),
    "behind others": (
        job("pending", **DUE),
        {"workers": [WORKER], "kinds": [{**KIND, "pending": 1201}]},
        [
            "has been due for 20 s, behind or beside 1,200 others of its kind",
            "1 worker offers it, with 1 of 10 slots taken",
        ],
    ),
    "behind others for long": (
        job("pending", due_at=at(minutes=10)),
        {"workers": [WORKER], "kinds": [{**KIND, "pending": 5}]},
        ["due for 10 min", "Start more workers"],
    ),
    "serial and busy": (
        job("pending", **DUE),
        {"workers": [WORKER], "kinds": [{**KIND, "serial": True, "claimed": 1}]},
        ["Only one job of kind 'export' runs at a time", "--status claimed"],
    ),
    "about to be taken": (job("pending", **DUE), {"workers": [WORKER], "kinds": [KIND]}, ["takes it in a moment"]),
    "rescued and due": (
        job("pending", **DUE, lost_count=1, turn_count=1),
        {"timeline": [RESCUED], "workers": [WORKER], "kinds": [KIND]},
        ["Once its worker was lost (w0)"],
    ),
    "cleanup waits for the attempt": (
        job("pending", cleanup_of="x", due_at="infinity"),
        {},
        ["waits until the attempt it cleans up after has stopped", "by itself"],
    ),
    "a cleanup is not held by a pause": (
        job("pending", cleanup_of="x", **DUE),
        {"kinds": [{**KIND, "paused": True}], "workers": [WORKER]},
        ["This cleanup has been due"],
    ),
    "running": (
        job(
            "claimed", claimed_by="w1", claimed_at=at(minutes=3), session_id="s1", report={"percent": 40, "rows": 12000}
        ),
        {"workers": [WORKER]},
        ["running on w1 for 3 min and last reported 40 %, 12,000 rows", "last heard of 3.0 s ago", "jobs watch"],
    ),
    "running and reporting nonsense": (
        job(
            "claimed",
            claimed_by="w1",
            claimed_at=at(minutes=3),
            session_id="s1",
            report={"percent": True, "phase": 3, "rows": "many", "eta_seconds": 1e300},
        ),
        {"workers": [WORKER]},
        ["running on w1 for 3 min. ", "jobs watch"],
    ),
    "running on a silent worker": (
        job("claimed", claimed_by="w1", claimed_at=at(minutes=3), session_id="s1", visible_at=LATER["due_at"]),
        {"workers": [{**WORKER, "beat_at": at(seconds=50)}]},
        ["last heard of 50 s ago; its lease ends in 90 s", "given to another worker"],
    ),
    "submitted": (
        job("submitted", waiting_on="trino query 7", submitted_at=at(minutes=4), **LATER),
        {"kinds": [KIND]},
        ["handed its work to trino query 7 and has waited for it for 4 min", "next look is in 90 s"],
    ),
    "submitted and nobody looks": (
        job("submitted", waiting_on="trino query 7", **DUE),
        {"workers": [], "kinds": [KIND]},
        ["nobody looks whether that has ended", "paddock worker --kinds export"],
    ),
    "submitted after a failed look": (
        job("submitted", waiting_on="trino", error_code="no_nodes", error_message="Trino has no nodes.", **LATER),
        {"timeline": [RETRY]},
        ["The last look failed: Trino has no nodes. [no_nodes]"],
    ),
    "completed": (job("completed", turn_count=1, run_seconds=12), {}, ["completed after running for 12 s."]),
    "completed after trouble": (
        job("completed", turn_count=3, run_seconds=12),
        {"timeline": [RESCUED, RETRY]},
        ["in 3 turns", "Once its worker was lost (w0)", "failed once on the way", "Trino has no nodes."],
    ),
    "failed with a hint": (
        job("failed", error_code="role_denied", error_message="No.", errors=[{"hint": "Ask for the role."}]),
        {},
        ["failed: No. [role_denied]", "Ask for the role.", f"paddock jobs retry {ID}"],
    ),
    "failed without a hint": (job("failed", error_code="x", error_message="No"), {}, ["No. [x]", "jobs logs"]),
    "attempts exhausted": (
        job("failed", error_code="attempts_exhausted", error_message="Five times.", failure_count=5),
        {},
        ["failed 5 times before", "Fix what the last error names"],
    ),
    "worker lost": (
        job("failed", error_code="worker_lost", error_message="Too many.", lost_count=6),
        {"timeline": [RESCUED, {**RESCUED, "worker": "w2"}]},
        ["lost 6 times (w0, w2)", "memory is the usual reason"],
    ),
    "worker lost and never given to another": (
        job("failed", error_code="worker_lost", error_message="Worker 'w0' died.", turn_count=1),
        {"timeline": [{**RESCUED, "event": "worker_lost", "to": "failed"}]},
        ["failed: Worker 'w0' died. [worker_lost]"],
    ),
    "failed and retried": (
        job("failed", error_code="x", error_message="No.", retried_by="y"),
        {},
        ["retried already, as y"],
    ),
    "failed while drained": (
        job("failed", error_code="x", error_message="No."),
        {"state": {"drain": {"enabled": True}}},
        ["once new work is accepted again"],
    ),
    "cancelled": (
        job("cancelled", turn_count=1),
        {"timeline": [{"at": at(minutes=1), "event": "cancelled", "actor": "ada", "reason": "wrong table"}]},
        ["was cancelled by ada: wrong table."],
    ),
    "cancelled before it ran": (
        job("cancelled"),
        {"timeline": [{"at": at(minutes=1), "event": "cancelled", "actor": "ada"}]},
        ["cancelled by ada, who gave no reason. It had never run."],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_why(name: str) -> None:
    facts, surroundings, said = CASES[name]
    told = explain(facts, now=NOW, **surroundings)
    text = " ".join([told.sentence, *told.what_to_do])
    for part in said:
        assert part in text, text
    assert told.sentence[0].isupper()
    assert told.sentence.rstrip("]").endswith((".", "code")) or told.sentence.endswith("]")


def test_what_was_given_to_nobody_is_not_said_to_be() -> None:
    facts, surroundings, _ = CASES["worker lost and never given to another"]
    told = explain(facts, now=NOW, **surroundings)
    assert "another" not in told.sentence
    assert [step.text for step in told.steps] == ["w0 was lost; not given to another"]


def test_drain_does_not_hold_what_is_queued() -> None:
    told = explain(job("pending", **DUE), (), [KIND], [WORKER], {"drain": {"enabled": True}}, now=NOW)
    assert "drain" not in told.sentence


def test_every_step_is_told() -> None:
    told = explain(job("pending", **DUE), [RESCUED, RETRY, {"at": at(), "event": "something_new"}], now=NOW)
    assert [step.text for step in told.steps] == [
        "w0 was lost; given back",
        "failed on w1: Trino has no nodes; waits to be tried again",
        "something new",
    ]


def test_what_counts_on_what_is_quoted_and_what_is_typed_are_parts() -> None:
    failing = job("pending", **LATER, failure_count=1, error_code="no_nodes", error_message="Trino for 20 s (in 90 s)")
    told = explain(failing, now=NOW)
    assert [part for part in told.told if not isinstance(part, str)] == [
        Until(NOW + timedelta(seconds=90), "in 90 s"),
        Quote("Trino for 20 s (in 90 s)"),
    ]
    assert told.advice == [
        ("If the cause is fixed already, ", Place("run_now", f"`paddock jobs run-now {ID}`"), " makes it due at once.")
    ]
    [due] = [part for part in explain(job("pending", **DUE), now=NOW).told if not isinstance(part, str)]
    assert due == Since(NOW - timedelta(seconds=20), "20 s")
