"""`paddock serve` and `paddock worker` apart, on a PostgreSQL of their own: replicas, outages, shutdown."""

import contextlib
import http.client
import os
import signal
import socket
import threading

import pytest

from tests.ports import free_ports
from tests.processes.installation import Installation, answer, body, until_ready
from tests.processes.running import Process, clean_environment, gone, until_status, wait_for

pytestmark = pytest.mark.slow


def test_two_replicas_on_one_database_and_one_is_killed(installation: Installation) -> None:
    ports = free_ports(2)
    replicas = [installation.serve(port) for port in ports]
    for port, replica in zip(ports, replicas, strict=True):
        until_ready(port, replica)
    workers = [installation.worker(port, f"at-{n}") for n, port in enumerate(ports)]
    with installation.client(ports[1]) as client:
        payload = {"progress": 4, "sleep_seconds": 1, "save_each_step": True}
        ids: list[str] = []

        def both_run_some() -> bool:
            # As many as it takes: whoever starts first may have done them all before the second comes.
            live = [job for job in client.list() if job["completed_at"] is None]
            if len(live) < 20:
                ids.extend(job["id"] for job in client.submit_many([{"kind": "probe", "payload": payload}] * 30))
            return {"at-0", "at-1"} <= {job["claimed_by"] for job in live}

        wait_for("both workers run some", both_run_some)
        replicas[0].signal(signal.SIGKILL)
        jobs = [client.wait(id, timeout=90) for id in ids]
        assert {job["status"] for job in jobs} == {"completed"}
    assert workers[0].popen.poll() is None, "a worker waits for its control plane"


def test_a_worker_survives_a_control_plane_that_is_away_and_finishes_its_job(installation: Installation) -> None:
    [port] = free_ports(1)
    # Two beats are the patience that a worker has to come back with.
    patience = {"PADDOCK_BEAT_SECONDS": "3", "PADDOCK_LEASE_SECONDS": "9"}
    plane = installation.serve(port, **patience)
    until_ready(port, plane)
    installation.worker(port, "patient")
    with installation.client(port) as client:
        id = client.submit("probe", {"sleep_seconds": 4})["id"]
        until_status(client, id, "claimed")
        plane.signal(signal.SIGTERM)
        assert plane.wait() == 0
        again = installation.serve(port, **patience)
        until_ready(port, again)
        job = client.wait(id, timeout=60)
        assert (job["status"], job["turn_count"], job["lost_count"]) == ("completed", 1, 0)


def test_serve_waits_for_its_database_and_outlives_its_absence(installation: Installation) -> None:
    [port] = free_ports(1)
    installation.postgres.stop()
    plane = installation.serve(port)
    plane.until_said("database_unavailable")
    assert answer(port, "/health") == 200, "or a liveness probe would start it again and again"
    assert (answer(port, "/ready"), answer(port, "/api/jobs")) == (503, 503)
    installation.postgres.start()
    until_ready(port, plane)
    installation.worker(port, "w")
    wait_for("figures were read", lambda: "background_job_health_status{" in body(port, "/metrics"))

    installation.postgres.stop()
    wait_for("/ready says so", lambda: answer(port, "/ready") == 503)
    assert answer(port, "/health") == 200
    assert "background_job_health_status{" in body(port, "/metrics"), "what was last read"
    installation.postgres.start()
    until_ready(port, plane)
    with installation.client(port) as client:
        assert client.wait(client.submit("probe")["id"], timeout=60)["status"] == "completed"
    assert plane.popen.poll() is None


def test_serve_answers_who_waits_when_it_stops(installation: Installation) -> None:
    [port] = free_ports(1)
    plane = installation.serve(port)
    until_ready(port, plane)
    with installation.client(port) as client:
        id = client.submit("probe")["id"]

    def open_and_read(path: str) -> threading.Thread:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        # Sent before anybody goes on: the server takes those that knock in their order.
        connection.request("GET", path, headers={"Authorization": f"Bearer {installation.admin}"})

        def read() -> None:
            with contextlib.closing(connection), connection.getresponse() as response:
                statuses.append(response.status)
                response.read()

        reader = threading.Thread(target=read)
        reader.start()
        return reader

    statuses: list[int] = []
    readers = [open_and_read(f"/api/jobs/{id}?wait=30"), open_and_read("/api/stream")]
    wait_for("the stream is open", lambda: "paddock_streams 1.0" in body(port, "/metrics"))
    plane.signal(signal.SIGTERM)
    assert plane.wait(25) == 0, "sooner than the wait is over"
    for reader in readers:
        reader.join(60)
        assert not reader.is_alive()
    assert statuses == [200, 200]


def test_own_ports_for_workers_and_metrics(installation: Installation) -> None:
    port, internal, metrics = free_ports(3)
    plane = installation.serve(port, PADDOCK_INTERNAL_PORT=str(internal), PADDOCK_METRICS_PORT=str(metrics))
    until_ready(port, plane)
    assert answer(metrics, "/metrics") == 200
    assert answer(port, "/metrics") == 404
    installation.worker(internal, "inside-door")
    with installation.client(port) as client:
        assert client.wait(client.submit("probe")["id"], timeout=60)["claimed_by"] == "inside-door"


def test_sigterm_of_a_worker_blocked_in_c_gives_its_job_back_in_time(installation: Installation) -> None:
    [port] = free_ports(1)
    until_ready(port, installation.serve(port))
    worker = installation.worker(port, "blocked")
    with installation.client(port) as client:
        ids = [client.submit(kind, {"block_seconds": 3600})["id"] for kind in ("probe", "probe_blocking")]
        for id in ids:
            until_status(client, id, "claimed")
        family = worker.children()
        worker.signal(signal.SIGTERM)
        worker.wait(20)  # a grace of 2 s, then 2 s, and a loaded machine; what it runs would take an hour
        assert gone(family)
        for id in ids:
            job = client.get(id)
            assert (job["status"], job["lost_count"], job["failure_count"]) == ("pending", 0, 0)
            assert "released" in [entry["event"] for entry in client.timeline(id)]


def test_a_worker_that_is_frozen_loses_its_job_and_cannot_finish_it(installation: Installation) -> None:
    [port] = free_ports(1)
    until_ready(port, installation.serve(port))
    ledger = installation.folder / "zombie.ledger"
    ledger.touch()
    sleeper = installation.worker(port, "sleeper")
    with installation.client(port) as client:
        id = client.submit("probe", {"sleep_seconds": 4, "ledger": str(ledger)})["id"]
        until_status(client, id, "claimed")
        for process in [*sleeper.children()]:
            process.suspend()
        os.kill(sleeper.pid, signal.SIGSTOP)
        installation.worker(port, "heir")
        job = client.wait(id, timeout=60)
        assert (job["status"], job["claimed_by"]) == ("completed", "heir")
        os.kill(sleeper.pid, signal.SIGCONT)
        for process in sleeper.children():
            process.resume()
        sleeper.until_said("stale")
        assert client.get(id) == job


@pytest.mark.parametrize("missing", ["database", "port"])
def test_what_serve_cannot_start_with_is_a_sentence(installation: Installation, missing: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = {"PADDOCK_DATABASE_URL": installation.postgres.dsn.replace("/paddock?", "/no_such_database?")}
        port = taken.getsockname()[1] if missing == "port" else free_ports(1)[0]
        environment = clean_environment(PADDOCK_HOST="127.0.0.1", **settings)
        plane = Process("serve", "--port", str(port), log=installation.folder / "refused.log", environment=environment)
        assert plane.wait() == 1
        [line] = plane.said().splitlines()
        assert ("no_such_database" if missing == "database" else str(port)) in line
