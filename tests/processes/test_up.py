"""`paddock up` as a person meets it: real processes, killed and stopped."""

import json
import signal
import stat
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from paddock.client import Client, PaddockError
from tests.processes.running import (
    Process,
    Up,
    clean_environment,
    data_folder,
    gone,
    running_up,
    until_status,
    wait_for,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    """One whose parts are killed, and that goes on: whoever looks at what it said looks at what it said since."""
    with data_folder() as data, running_up(data, "--port", "0") as running:
        yield running


@pytest.fixture(scope="module")
def up_without_worker() -> Iterator[Up]:
    with data_folder() as data, running_up(data, "--port", "0", "--no-worker") as running:
        yield running


@pytest.fixture
def client(up: Up) -> Iterator[Client]:
    with up.client() as opened:
        yield opened


def test_it_says_where_it_is_and_keeps_its_token_private(up: Up, client: Client) -> None:
    told = up.until_said("Ctrl-C stops")
    assert f"Paddock answers at {up.address['url']}" in told
    assert f"Dashboard   {up.address['url']} (`paddock tokens link --data {up.data}` makes a link" in told
    assert "#code=" not in told, "a file gets no link that signs in"
    assert f"Token       {up.data / 'admin.token'}" in told
    assert up.token not in told
    assert up.address["pid"] == up.pid
    assert stat.S_IMODE((up.data / "admin.token").stat().st_mode) == 0o600
    assert client.wait(client.submit("probe", {"result": 7})["id"], timeout=60)["result"] == 7


def test_a_second_one_on_the_same_folder_is_refused_with_a_sentence(up: Up, client: Client) -> None:
    second = Process("up", "--data", str(up.data), "--port", "0", log=up.data.parent / "second.log")
    assert second.wait() == 1
    [line] = second.said().splitlines()
    assert line.startswith(f"A Paddock is running on {up.data} already at {up.address['url']} (process {up.pid})")
    assert client.wait(client.submit("probe")["id"], timeout=60)["status"] == "completed"


def test_modules_of_ours_are_not_taken_from_the_folder_it_is_started_in() -> None:
    with data_folder() as data:
        (data.parent / "numbers.py").write_text("raise SystemExit('the wrong module')")
        with running_up(data, "--port", "0") as up, up.client() as client:
            assert client.wait(client.submit("probe", {"result": 7})["id"], timeout=60)["result"] == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_all_of_it_cleanly_and_the_data_stays(number: signal.Signals) -> None:
    with data_folder() as data:
        with running_up(data, "--port", "0") as up:
            up.child("worker")
            with up.client() as client:
                id = client.submit("probe", {"result": "kept"})["id"]
                client.wait(id, timeout=60)
            token, family = up.token, up.children()
            up.signal(number)
            assert up.wait() == 0
            wait_for("every process is gone", lambda: gone(family))
            assert not (data / "server.json").exists()
            assert "Traceback" not in up.said()
        with running_up(data, "--port", "0") as again:
            assert again.token == token
            with again.client() as client:
                assert client.get(id)["result"] == "kept"


def test_sigkill_leaves_no_process_behind_and_the_next_start_goes_on() -> None:
    with data_folder() as data:
        with running_up(data, "--port", "0") as up:
            up.child("worker")
            with up.client() as client:
                id = client.submit("probe", {"sleep_seconds": 4, "progress": 8, "save_each_step": True})["id"]
                until_status(client, id, "claimed")
            family = up.children()
            assert len(family) > 3
            up.signal(signal.SIGKILL)
            up.wait()
            wait_for("every process is gone", lambda: gone(family))
        with running_up(data, "--port", "0") as again, again.client() as client:
            assert client.wait(id, timeout=90)["status"] == "completed"


def test_a_killed_worker_is_started_again_and_its_job_completed_once(up: Up, client: Client) -> None:
    said = len(up.said())
    ledger = up.data / "jobs.ledger"
    ledger.touch()
    payload = {"progress": 8, "sleep_seconds": 6, "save_each_step": True, "ledger": str(ledger)}
    worker = up.child("worker")
    ids = [job["id"] for job in client.submit_many([{"kind": "probe", "payload": payload}] * 4)]
    [name] = {until_status(client, id, "claimed")["claimed_by"] for id in ids}
    runners = worker.children(recursive=True)
    worker.kill()
    jobs = [client.wait(id, timeout=90) for id in ids]
    assert gone(runners)
    assert {job["status"] for job in jobs} == {"completed"}
    assert {job["claimed_by"] for job in jobs} == {f"local-{int(name.removeprefix('local-')) + 1}"}
    assert {job["lost_count"] for job in jobs} <= {0, 1}  # a save after the rescue forgives it
    for id in ids:
        assert "rescued" in [entry["event"] for entry in client.timeline(id)]
    assert sorted(line.split()[0] for line in ledger.read_text().splitlines()) == sorted(ids)
    assert "The worker was killed by SIGKILL" in up.said()[said:]


def test_a_killed_control_plane_is_started_again(up: Up, client: Client) -> None:
    said = len(up.said())
    id = client.submit("probe", {"sleep_seconds": 4, "progress": 4})["id"]
    worker = until_status(client, id, "claimed")["claimed_by"]
    plane = up.child("serve")
    plane.kill()
    wait_for("another one runs", lambda: up.child("serve").pid != plane.pid)
    job = until_status(client, id, "completed")
    assert job["claimed_by"] == worker
    assert "The control plane was killed by SIGKILL" in up.said()[said:]


def test_a_killed_postgres_is_started_again(up: Up, client: Client) -> None:
    said = len(up.said())
    first = client.wait(client.submit("probe")["id"], timeout=60)
    postgres = next(child for child in psutil.Process(up.pid).children() if "postgres" in child.name())
    postgres.kill()
    # Its backends outlive it for a moment: what is accepted then is kept, and waited for across the restart.
    job = wait_for("work is accepted again", lambda: _submitted(client))
    assert client.wait(job["id"], timeout=60)["status"] == "completed"
    assert client.get(first["id"])["status"] == "completed"
    assert "PostgreSQL ended by itself" in up.said()[said:]


def test_a_postgres_that_cannot_start_is_tried_again_until_it_can(up: Up, client: Client) -> None:
    said = len(up.said())
    # Whatever keeps it from starting: a full disk is too much to ask of the machine that runs the tests.
    broken = up.data / "pg" / "postgresql.auto.conf"
    whole = broken.read_bytes()
    broken.write_bytes(b"this is no setting\n")
    next(child for child in psutil.Process(up.pid).children() if "postgres" in child.name()).kill()
    wait_for("it was tried twice", lambda: "could not be started again (try 2, the next in" in up.said()[said:])
    wait_for("/health says so", lambda: "could not be started again" in _health(up).get("database", ""))

    broken.write_bytes(whole)
    job = wait_for("work is accepted again", lambda: _submitted(client))
    assert client.wait(job["id"], timeout=60)["status"] == "completed"
    wait_for("/health has nothing to say", lambda: "database" not in _health(up))


def _health(up: Up) -> dict[str, str]:
    with urllib.request.urlopen(f"{up.address['url']}/health", timeout=10) as answer:
        health: dict[str, str] = json.load(answer)["data"]
    return health


def _submitted(client: Client) -> dict[str, str] | None:
    try:
        return client.submit("probe")
    except PaddockError:
        return None


def test_without_a_worker(up_without_worker: Up) -> None:
    data = up_without_worker.data
    with up_without_worker.client() as client:
        id = client.submit("probe")["id"]
        assert client.get(id)["status"] == "pending"
        why = Process("why", id, "--data", str(data), log=data.parent / "why.log")
        assert why.wait() == 0
        assert "no live worker offers the kind 'probe'" in why.said().replace("\n", " ")

        once = Process(
            *("worker", "--once", "--kinds", "probe"),
            log=data.parent / "once.log",
            environment=clean_environment(PADDOCK_DATA=str(data)),
        )
        assert once.wait() == 0
        assert client.get(id)["status"] == "completed"


def test_once_is_exit_code_1_when_the_job_fails(up_without_worker: Up) -> None:
    data = up_without_worker.data
    with up_without_worker.client() as client:
        id = client.submit("probe", {"fail": "as asked for", "leave": "something"})["id"]
        once = Process(
            *("worker", "--once", "--kinds", "probe"),
            log=data.parent / "once.log",
            environment=clean_environment(PADDOCK_DATA=str(data)),
        )
        assert once.wait() == 1
        assert client.get(id)["status"] == "failed"
        [cleanup] = [job for job in client.list(kind="probe") if job["cleanup_of"] == id]
        assert cleanup["status"] == "completed"


def test_once_is_exit_code_0_when_nothing_comes_in_time(up_without_worker: Up) -> None:
    data = up_without_worker.data
    once = Process(
        *("worker", "--once", "--wait", "1s", "--kinds", "probe_blocking"),
        log=data.parent / "once.log",
        environment=clean_environment(PADDOCK_DATA=str(data)),
    )
    assert once.wait() == 0


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    import socket

    with data_folder() as data, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        up = Process("up", "--data", str(data), "--port", str(port), log=tmp_path / "up.log")
        assert up.wait() == 1
        assert up.said() == f"Port {port} is taken by another program: choose one with --port N.\n"


def test_the_folder_of_an_earlier_up_that_was_killed_is_not_mistaken_for_a_running_one(tmp_path: Path) -> None:
    data = tmp_path / "paddock-data"
    data.mkdir()
    (data / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": 2**22}))
    listing = Process("jobs", "list", "--data", str(data), log=tmp_path / "list.log")
    assert listing.wait() == 1
    assert "No Paddock is running" in listing.said()
