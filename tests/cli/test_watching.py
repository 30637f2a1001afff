"""`paddock jobs watch`: by the stream, without it, and when the stream is spoilt on its way."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from paddock.cli.connection import Connect, Server, open_server
from paddock.cli.jobs import streaming
from paddock.client import Client, Message
from tests.cli.conftest import Said, Terminal
from tests.cli.proxying import Fate, Proxy, running_proxy
from tests.processes.running import Up, until_status

SLOW = pytest.mark.slow


@pytest.fixture
def server(up: Up, terminal: Terminal) -> Iterator[Server]:
    opened = open_server(Connect(data=up.data))
    yield opened
    opened.close()


@pytest.fixture
def through(up: Up) -> Iterator[Callable[..., Proxy]]:
    with ExitStack() as running:
        yield lambda *fates: running.enter_context(running_proxy(Proxy(up.address["url"], list(fates))))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between connections, and nothing is found out by looking again: only by what the stream says."""
    monkeypatch.setattr(streaming, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(streaming, "LOOK_AGAIN_SECONDS", 3600.0)


def watch(terminal: Terminal, proxy: Proxy, up: Up, *ids: str) -> Said:
    token = str(up.data / "admin.token")
    return terminal("jobs", "watch", *ids, "--server", proxy.url, "--token-file", token, data=False)


def waiting(client: Client, **payload: object) -> str:
    """A job that does nothing until somebody does something to it."""
    body = {"kind": "probe", "payload": payload, "run_at": "2100-01-01T00:00:00Z"}
    return str(client.request("POST", "/api/jobs", body=body)["data"]["id"])


@pytest.mark.usefixtures("at_once")
def test_a_job_is_followed_by_one_stream_without_asking_again(
    terminal: Terminal, up: Up, client: Client, through: Callable[..., Proxy]
) -> None:
    proxy = through("whole")
    id = waiting(client)
    proxy.at_begin = lambda _: client.run_now(id)

    said = watch(terminal, proxy, up, id)

    assert (said.code, said.err) == (0, "")
    assert said.lines[0].split()[:2] == [id, "pending"]
    assert said.lines[-1].split()[:2] == [id, "completed"]
    assert [asked for asked, _ in proxy.streams] == [{"job": [id]}]
    assert not [path for path in proxy.reads if "wait=" in path]


def test_a_job_that_has_ended_already_needs_no_stream(
    terminal: Terminal, up: Up, client: Client, through: Callable[..., Proxy]
) -> None:
    proxy = through("refused")
    good = client.wait(client.submit("probe", {"result": 1})["id"])["id"]
    bad = client.wait(client.submit("probe", {"fail": "The disk is full."})["id"])["id"]
    cancelled = waiting(client)
    client.cancel(cancelled)

    assert watch(terminal, proxy, up, good).code == 0
    failed = watch(terminal, proxy, up, bad)
    assert (failed.code, failed.lines[0].split()[1]) == (1, "failed")
    assert "The disk is full. [probe_failed]" in failed.err
    assert watch(terminal, proxy, up, cancelled).code == 1
    assert watch(terminal, proxy, up, good, bad).code == 1
    assert proxy.streams == []


@pytest.mark.usefixtures("at_once")
def test_a_job_that_ends_before_the_stream_begins_is_not_waited_for(
    terminal: Terminal, up: Up, client: Client, through: Callable[..., Proxy]
) -> None:
    proxy = through("whole")
    id = waiting(client)
    proxy.at_ask = lambda _: client.cancel(id)

    said = watch(terminal, proxy, up, id)

    assert (said.code, said.lines[-1].split()[1]) == (1, "cancelled")


@pytest.mark.usefixtures("at_once")
def test_a_cut_stream_goes_on_from_where_it_was_cut(
    terminal: Terminal, up: Up, client: Client, through: Callable[..., Proxy]
) -> None:
    proxy = through("cut", "whole")
    first, second = waiting(client), waiting(client)
    # One ends while there is no stream, the other once it is back.
    proxy.at_cut = lambda number: client.cancel(second) if number == 1 else None
    proxy.at_begin = lambda number: client.cancel(first) if number == 2 else None

    said = watch(terminal, proxy, up, first, second)

    assert (said.code, said.err) == (1, "")
    assert {line.split()[0] for line in said.lines if "cancelled" in line} == {first, second}
    [(asked, no_place), (asked_again, place)] = proxy.streams
    assert asked == asked_again == {"batch": ["1"], "kind": ["probe"]}
    assert no_place is None
    assert place is not None


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("fate", "sentence", "streams"),
    [
        pytest.param("refused", "The stream is refused: This token has 20 streams open already.", 1, marks=SLOW),
        ("cut", "The stream was cut 3 times in a row.", 3),
        pytest.param("silent", "The stream says nothing: something on the way holds it back.", 1, marks=SLOW),
    ],
)
def test_without_a_stream_it_asks_again_and_says_so(
    terminal: Terminal,
    up: Up,
    client: Client,
    through: Callable[..., Proxy],
    monkeypatch: pytest.MonkeyPatch,
    fate: Fate,
    sentence: str,
    streams: int,
) -> None:
    if fate == "silent":
        monkeypatch.setattr(streaming, "SILENCE_SECONDS", 0.5)
    proxy = through(fate)
    id = waiting(client, progress=3, sleep_seconds=3, fail="The disk is full.")
    # Not before, however long it took to get there.
    proxy.at_ask = lambda number: client.run_now(id) if number == streams else None

    said = watch(terminal, proxy, up, id)

    assert said.code == 1
    assert said.err.splitlines()[0] == f"{sentence} Asking again every second instead."
    assert said.err.count("Asking again") == 1
    assert said.lines[-1].split()[1] == "failed"
    assert len(proxy.streams) == streams
    assert [path for path in proxy.reads if "wait=1" in path]


def test_what_no_message_told_is_found_by_looking_again(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    id = waiting(client)
    watched = streaming.Watched(server, [id], lambda job: seen.append(job["status"]))
    watched.look()
    client.cancel(id)

    watched.hear(Message("", None, None))
    assert (watched.open, seen) == ([id], ["pending"])

    monkeypatch.setattr(streaming, "LOOK_AGAIN_SECONDS", -1.0)
    watched.hear(Message("", None, None))
    assert (watched.open, seen) == ([], ["pending", "cancelled"])


def test_a_message_older_than_what_was_read_is_not_shown(server: Server, client: Client) -> None:
    seen: list[str] = []
    id = client.submit("probe", {"sleep_seconds": 600})["id"]
    running = until_status(client, id, "claimed")
    watched = streaming.Watched(server, [id], lambda job: seen.append(job["status"]))
    watched.look()

    watched.hear(Message("job", {**running, "status": "pending", "turn_count": 0}, "e:1"))

    assert seen == ["claimed"]
    client.cancel(id)
