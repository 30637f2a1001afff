"""Waiting for an instance: until it runs, with the reason when it never will."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from paddock.client import AlgorithmFailed, InstanceFailed, NotFinished, NotFound
from paddock.client.progress import in_words, percent, progress_bar
from tests.instances.sdk.answering import ID, Answers, data, instance, refusal

LOADING = instance("starting", progress={"phase": "edges", "percent": 43.2, "eta_seconds": 12.4, "tables": []})


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.client.waiting.time.sleep", lambda _: None)


def test_create_and_wait_answers_the_running_instance_and_tells_the_way_there() -> None:
    states = [instance("waiting_for_snapshot"), LOADING, instance("running")]
    server = Answers([data(states[0], 201), *map(data, states)])
    told: list[str] = []
    with server.client() as client:
        found = client.instances.create_and_wait(snapshot=ID, on_progress=lambda one: told.append(in_words(one)))
    assert found["status"] == "running"
    assert told == ["waits for its snapshot", "loads edges, 43 %, 12 s left", "running"]


def test_what_it_waits_for_is_told_on_one_line() -> None:
    words = "room on a node (0/5 nodes are available:\n2 Insufficient memory. " + "more " * 50
    told = in_words(instance("starting", progress={"phase": "starting", "waiting_for": words}))
    assert told.startswith("waits for room on a node (0/5 nodes are available: 2 Insufficient memory.")
    assert len(told) < 140


def test_an_instance_that_fails_raises_with_its_reason() -> None:
    error = {"code": "DATA_LOAD_ERROR", "message": "Airport: the key 'KFD' comes twice.", "hint": "Make it unique."}
    server = Answers([data(instance("starting"), 201), data(instance("failed", error=error))])
    with server.client() as client, pytest.raises(InstanceFailed, match="KFD") as failed:
        client.instances.create_and_wait(snapshot=ID)
    assert (failed.value.code, failed.value.hint) == ("DATA_LOAD_ERROR", "Make it unique.")
    assert failed.value.instance["status"] == "failed"


def test_one_that_somebody_deletes_meanwhile_is_not_waited_for() -> None:
    with Answers([data(instance("stopping"))]).client() as client, pytest.raises(InstanceFailed, match="stopping"):
        client.instances.wait_until_running(ID)


def test_the_time_to_wait_ends() -> None:
    with Answers([data(LOADING)]).client() as client, pytest.raises(NotFinished, match="flights is still starting"):
        client.instances.wait_until_running(ID, timeout=0)


def test_who_waits_waits_across_a_restart_of_the_server() -> None:
    server = Answers([refusal(503, "database_unavailable"), data(instance("running"))])
    with server.client() as client:
        assert client.instances.wait_until_running(ID)["status"] == "running"


def test_terminate_returns_when_it_is_gone() -> None:
    server = Answers([data(instance("stopping"), 202), data(instance("stopping")), refusal(404, "instance_gone")])
    with server.client() as client:
        client.instances.terminate(ID)
    assert server.lines == [f"{method} /api/instances/{ID}" for method in ("DELETE", "GET", "GET")]


def test_an_instance_that_never_was_is_not_terminated() -> None:
    with Answers([refusal(404, "not_found")]).client() as client, pytest.raises(NotFound):
        client.instances.terminate(ID)


def test_an_instance_is_extended_by_what_is_asked() -> None:
    times = {"started_at": "2026-11-18T09:00:00Z", "expires_at": "2026-11-19T21:00:00Z"}
    running = instance("running", ttl="PT36H", **times)
    server = Answers([data(running)])
    with server.client() as client:
        client.instances.extend_ttl(ID, "12h")
        assert server.body() == {"ttl": "PT172800S"}
        client.instances.extend_ttl(ID)
        assert server.body() == {"ttl": "PT216000S"}


def test_one_that_ran_and_failed_lives_no_longer_than_asked() -> None:
    times = {"started_at": "2026-11-18T09:00:00Z", "expires_at": "2026-11-21T09:00:00Z"}
    server = Answers([data(instance("failed", ttl="PT24H", **times))])
    with server.client() as client:
        client.instances.extend_ttl(ID, "PT1H")
    assert server.body() == {"ttl": "PT90000S"}, "its time counts from its end, two days after it began"


def test_whoever_terminates_may_say_why() -> None:
    server = Answers([data({"id": ID, "status": "gone"}), refusal(404, "instance_gone")])
    with server.client() as client:
        client.instances.terminate(ID, reason="the workshop is over")
    assert dict(server.asked[0].url.params) == {"reason": "the workshop is over"}


def test_one_that_does_not_run_yet_is_extended_too() -> None:
    server = Answers([data(instance("starting"))])
    with server.client() as client:
        client.instances.extend_ttl(ID, "PT1H")
    assert server.body() == {"ttl": "PT90000S"}


def test_an_algorithm_is_waited_for() -> None:
    running = {"execution_id": ID, "algorithm": "pagerank", "status": "running"}
    done = {**running, "status": "completed", "result": {"nodes": 3, "property": "rank"}}
    server = Answers([data(instance("running")), data(running, 202), data(running), data(done)])
    with server.client() as client:
        result = client.instances.connect(ID).algo.pagerank(damping=0.9, write_property="rank")
    assert result == {"nodes": 3, "property": "rank"}
    assert server.body(1) == {"damping": 0.9, "write_property": "rank"}


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_an_algorithm_that_does_not_complete_raises(status: str) -> None:
    ended = {"execution_id": ID, "algorithm": "wcc", "status": status, "error": None}
    server = Answers([data(instance("running")), data(ended, 202), data(ended)])
    with server.client() as client, pytest.raises(AlgorithmFailed, match=f"wcc was {status}"):
        client.instances.connect(ID).algo.wcc()


def test_an_instance_is_found_by_its_name_and_asked_where_it_runs() -> None:
    other = {**instance("failed"), "id": ID.replace("0", "1")}
    server = Answers([data([other, instance("running")]), data(instance("running"))])
    with server.client() as client:
        assert client.instances.connect("flights").instance["id"] == ID
    assert server.asked[0].url.params["name"] == "flights"
    with Answers([data([])]).client() as client, pytest.raises(NotFound, match="There is no instance 'flights'"):
        client.instances.get("flights")


def test_what_is_made_of_a_mapping_has_its_name() -> None:
    server = Answers([data([{**instance("any"), "name": "flights"}]), data(instance("starting"), 201)])
    with server.client() as client:
        client.instances.create("flights")
        assert server.body() == {"mapping_id": ID, "name": "flights"}
        client.instances.create(ID)
        assert server.body() == {"mapping_id": ID}
        client.instances.create({"id": ID, "name": "flights"}, name="mine")
        assert server.body() == {"mapping_id": ID, "name": "mine"}


def test_a_name_of_several_is_refused_where_it_matters() -> None:
    from paddock.client import Ambiguous

    listed = [instance("failed", id="one"), instance("running", id="two")]
    with Answers([data(listed)]).client() as client, pytest.raises(Ambiguous) as refused:
        client.instances.terminate("flights")
    assert refused.value.hint is not None
    assert "one  ada" in refused.value.hint


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As IPython looks from inside a notebook's kernel."""
    shown: list[str] = []
    display = ModuleType("IPython.display")
    handle = SimpleNamespace(update=shown.append)

    def show(html: str, *, display_id: bool) -> Any:
        assert display_id
        shown.append(html)
        return handle

    vars(display).update(HTML=str, display=show)
    ipython = ModuleType("IPython")
    vars(ipython).update(get_ipython=lambda: SimpleNamespace(kernel=object()), display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown


def test_a_notebook_shows_a_bar_that_moves(notebook: list[str]) -> None:
    with progress_bar("<b>flights") as tell:
        assert tell is not None
        tell(LOADING)
        tell(instance("running"))
    first, last = notebook
    assert '<progress value="43" max="100">' in first
    assert "loads edges, 43 %, 12 s left" in first
    assert "&lt;b&gt;flights" in first
    assert '<progress value="100" max="100">' in last


def test_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress_bar("[red]flights") as tell:
        assert tell is not None
        tell(LOADING)
    out, err = capsys.readouterr()
    assert out == ""
    assert "[red]flights" in err
    assert "loads edges, 43 %" in err


def test_nobody_is_shown_a_bar_who_does_not_look() -> None:
    with progress_bar("flights") as tell:
        assert tell is None


@pytest.mark.parametrize("progress", [None, {}, {"percent": "much"}, {"percent": 1e9, "phase": 7}])
def test_progress_that_makes_no_sense_is_no_error(progress: Any) -> None:
    strange = instance("starting", progress=progress)
    assert 0 <= percent(strange) <= 100
    assert in_words(strange).startswith("starts")
