"""A refusal is an exception of a class that tells what it was, and what may be repeated is repeated."""

from typing import Any

import httpx2
import pytest

from paddock import client as sdk
from paddock.client import PaddockError, errors
from tests.instances.sdk.answering import ID, Answers, data, instance, refusal

RESULT = {
    "columns": ["n"],
    "column_types": ["INT64"],
    "rows": [[1]],
    "row_count": 1,
    "execution_time_ms": 1.5,
    "truncated": False,
}
ANY_STATUS = 418


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Nobody waits here: how long it would have been is kept."""
    kept: list[float] = []
    monkeypatch.setattr("paddock.client.waiting.time.sleep", kept.append)
    return kept


@pytest.mark.parametrize(("code", "kind"), errors.BY_CODE.items())
def test_each_code_has_its_class(code: str, kind: type[PaddockError]) -> None:
    with Answers([refusal(ANY_STATUS, code)]).client(patience=0) as client, pytest.raises(PaddockError) as refused:
        client.instances.get(ID)
    assert type(refused.value) is kind
    assert (refused.value.code, refused.value.message) == (code, f"It said {code}.")


@pytest.mark.parametrize(("status", "kind"), errors.BY_STATUS.items())
def test_a_code_without_a_class_is_told_by_its_status(status: int, kind: type[PaddockError]) -> None:
    with Answers([refusal(status, "new_code")]).client() as client, pytest.raises(PaddockError) as refused:
        client.instances.get(ID)
    assert type(refused.value) is kind


def test_every_class_is_found_where_people_look() -> None:
    kinds = {*errors.BY_CODE.values(), *errors.BY_STATUS.values(), errors.InstanceFailed, errors.AlgorithmFailed}
    assert {kind.__name__ for kind in kinds} <= set(sdk.__all__)


def test_a_failed_query_tells_where() -> None:
    wrong = refusal(422, "query_failed", details={"line": 2, "column": 7}, hint="Look there.")
    server = Answers([data(instance("running")), wrong])
    with server.client() as client, pytest.raises(errors.QueryFailed) as refused:
        client.instances.connect(ID).query("MATCH\n (a RETURN a")
    assert (refused.value.line, refused.value.column, refused.value.hint) == (2, 7, "Look there.")


@pytest.mark.parametrize(
    ("answer", "pause"),
    [
        (refusal(429, "too_many_queries", headers={"Retry-After": "3"}), 3.0),
        (refusal(503, "draining", headers={"Retry-After": "5"}), 5.0),
        (refusal(503, "engine_restarted"), errors.REPEAT_SECONDS),
        (refusal(503, "engine_restarted", headers={"Retry-After": "1"}), 1.0),
    ],
)
def test_what_may_be_repeated_is_repeated_when_the_server_says(answer: Any, pause: float, pauses: list[float]) -> None:
    server = Answers([data(instance("running")), answer, answer, data(RESULT)])
    with server.client() as client:
        assert client.instances.connect(ID).query_scalar("RETURN 1 AS n") == 1
    assert pauses == [pause, pause]
    assert server.lines[1:] == [f"POST /api/instances/{ID}/query"] * 3


@pytest.mark.parametrize("answer", [refusal(503, "no_time_named"), refusal(422, "query_crashed"), refusal(500, "bug")])
def test_what_does_not_say_so_is_not_repeated(answer: Any, pauses: list[float]) -> None:
    server = Answers([data(instance("running")), answer])
    with server.client() as client, pytest.raises(PaddockError):
        client.instances.connect(ID).query("RETURN 1")
    assert (len(server.asked), pauses) == (2, [])


def test_patience_ends(pauses: list[float]) -> None:
    server = Answers([refusal(503, "draining", headers={"Retry-After": "30"})])
    with server.client(patience=20) as client, pytest.raises(errors.Unavailable):
        client.instances.create(snapshot=ID)
    assert (len(server.asked), pauses) == (1, [])


def test_a_create_whose_answer_was_lost_is_sent_again_with_the_same_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.client.connection.time.sleep", lambda _: None)
    server = Answers([httpx2.ReadError("gone"), data(instance("starting"), 201)])
    with server.client() as client:
        client.instances.create(snapshot=ID, name="mine")
    first, second = server.asked
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert server.body() == {"snapshot_id": ID, "name": "mine"}
