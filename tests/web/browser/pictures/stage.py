"""A real Paddock for the pictures: embedded PostgreSQL, control plane, workers, a webhook's receiver, people and their jobs."""

import contextlib
import json
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from paddock.client import Client
from tests.processes.running import Process, Up, clean_environment, data_folder, running_up, wait_for
from tests.web.browser.pictures.warehouse import WORLD

ROOT = Path(__file__).parents[4]
# Whoever signs in for a picture is on call and called olga; the others ask for work.
ON_CALL = "olga"
OWNERS = {"ada": "analyst", "grace": "analyst", "nightly": "ops", ON_CALL: "ops"}
TABLES = ("orders", "customers", "payments", "shipments", "returns")
RECEIVER_PORT = 9400
SLOTS = 4
QUICK_LEASE = {"PADDOCK_BEAT_SECONDS": "2", "PADDOCK_LEASE_SECONDS": "12"}


class Receiver(ThreadingHTTPServer):
    """Answers what it is told to: somebody's ticket system."""

    daemon_threads = True
    answer = 200


class _Answering(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.answer)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *said: Any) -> None:
        pass


@dataclass
class Stage:
    up: Up
    folder: Path
    environment: dict[str, str]
    receiver: Receiver
    clients: dict[str, Client]
    tokens: dict[str, str]
    workers: dict[str, Process] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return str(self.up.address["url"])

    def world(self, **facts: Any) -> None:
        """At once and whole: jobs read it at any moment."""
        new = self.folder / "world.new"
        new.write_text(json.dumps(facts))
        new.replace(self.folder / "world.json")

    def start_worker(self, name: str) -> None:
        options = ("--id", name, "--server", self.url, "--token-file", str(self.folder / "worker.token"))
        self.workers[name] = Process(
            "worker",
            *options,
            "--concurrency",
            str(SLOTS),
            log=self.folder / f"{name}.log",
            environment={
                **self.environment,
                "PADDOCK_WORKER_PORT": "0",
                "PADDOCK_WORKER_KINDS": "ingest,report,transfer",
            },
        )
        wait_for(f"{name} beats", lambda: name in self.live_workers())

    def live_workers(self) -> set[str]:
        found = self.clients[ON_CALL].request("GET", "/api/workers")["data"]
        return {worker["worker_id"] for worker in found if worker["live"]}

    def number_of(self, **filters: Any) -> int:
        return sum(1 for _ in self.clients[ON_CALL].list(most=1000, **filters))


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    with data_folder() as data, contextlib.ExitStack() as ending:
        folder = data.parent
        environment = clean_environment(
            **QUICK_LEASE,
            **_installed(folder),
            PADDOCK_WEBHOOK_ALLOW_PRIVATE="true",  # the receiver is on this machine
            **{WORLD: str(folder / "world.json")},
        )
        up = ending.enter_context(running_up(data, "--port", "0", "--no-worker", environment=environment))
        receiver = ending.enter_context(Receiver(("127.0.0.1", RECEIVER_PORT), _Answering))
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        ending.callback(receiver.shutdown)
        admin = ending.enter_context(up.client())
        tokens = {owner: _token(admin, role, owner) for owner, role in OWNERS.items()}
        clients = {owner: ending.enter_context(Client(up.address["url"], token)) for owner, token in tokens.items()}
        (folder / "worker.token").write_text(_token(admin, "worker", "cluster"))
        made = Stage(up, folder, environment, receiver, clients, tokens)
        made.world()
        try:
            for number in (1, 2, 3):
                made.start_worker(f"etl-{number}")
            yield made
        finally:
            for worker in made.workers.values():
                worker.end()


def _installed(folder: Path) -> dict[str, str]:
    """What installing a package with the kinds of the warehouse would leave behind."""
    metadata = folder / "installed" / "warehouse-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: warehouse\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[paddock.kinds]\nwarehouse = tests.web.browser.pictures.warehouse:KINDS\n"
    )
    return {"PYTHONPATH": f"{metadata.parent}:{ROOT}"}


def _token(admin: Client, role: str, owner: str) -> str:
    made = admin.request("POST", "/api/tokens", body={"name": f"{owner}-{role}", "role": role, "owner": owner})
    return str(made["data"]["token"])


def ingest(table: str, rows: int, *tags: str) -> dict[str, Any]:
    source = f"s3://landing/{table}/2026-11-16/part-{random.randrange(64):04}.parquet"
    return {"kind": "ingest", "payload": {"table": table, "source": source, "rows": rows}, "tags": list(tags)}


def report(name: str, table: str) -> dict[str, Any]:
    return {
        "kind": "report",
        "payload": {"name": name, "table": table, "day": "2026-11-15"},
        "tags": ["daily", "sales"],
    }


def transfer(table: str, to: str) -> dict[str, Any]:
    return {"kind": "transfer", "payload": {"table": table, "to": to, "parts": 20}, "tags": ["partners"]}


@contextlib.contextmanager
def everyday_work(stage: Stage) -> Iterator[None]:
    """What a quiet day looks like: about two jobs each three seconds, from several people, until told to stop."""
    over = threading.Event()

    def submit() -> None:
        number = 0
        with contextlib.ExitStack() as ending:
            clients = {o: ending.enter_context(Client(stage.url, stage.tokens[o])) for o in ("ada", "grace", "nightly")}
            while not over.wait(random.uniform(1, 3)):
                number += 1
                rows = random.randrange(20_000, 90_000)
                clients["nightly"].submit_many([ingest(random.choice(TABLES), rows, "nightly", "eu")])
                if number % 4 == 0:
                    clients["ada"].submit_many([report("daily-revenue", "payments")])
                if number % 9 == 0:
                    clients["grace"].submit_many([transfer("shipments", "sftp.harbour.example")])

    working = threading.Thread(target=submit)
    working.start()
    try:
        yield
    finally:
        over.set()
        working.join()
