"""Dumps whose worker dies again and again, now and then with the control plane or the store: the file is what nobody
disturbed. `DUMP_KILLS=50 DUMP_ROWS=400000` is the long way."""

import contextlib
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from paddock.storage.parts import open_parts
from paddock.storage.store import open_store
from tests.dumps.whole import Place, place, undisturbed
from tests.processes.running import Process, clean_environment, wait_for
from tests.storage.servers import BUCKET, WEED_PORTS, aws_environ, new_place, seaweed_at
from tests.storage.servers import Place as ServerPlace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("DUMP_KILLS", "10"))
ROWS = int(os.environ.get("DUMP_ROWS", "40000"))
DUMPS = [
    ("shop", "sql"),
    ("shop", "json"),
    ("shop", "csv"),
    ("shop", "sqlite"),
    ("lake", "sql"),
    ("lake", "json"),
    ("lake", "csv"),
]


async def test_ten_kills_in_every_dump_change_no_byte_and_leave_nothing(tmp_path: Path) -> None:
    chance = random.Random(20261116)
    with place(rows=ROWS) as paddock:
        ids = [paddock.start(database, format) for database, format in DUMPS]
        suffered = dict.fromkeys(ids, 0)
        kills = 0
        while min(suffered.values()) < KILLS:
            running = _some_turns(paddock, chance.randint(1, 2 * len(ids)))
            assert len(running) == len(ids), f"One ended after {suffered} kills: make the databases larger."
            kills += 1
            _kill(paddock, "serve" if kills % 4 == 0 else "worker")
            for id in ids:
                suffered[id] += 1
        for id in ids:
            await _is_what_nobody_disturbed(paddock, id, tmp_path)
        assert len(paddock.objects()) == len(ids)
        assert not paddock.copies()


async def test_a_worker_that_wakes_after_another_has_ended_its_dump_changes_nothing(tmp_path: Path) -> None:
    with place(rows=4_000) as paddock:
        id = paddock.start("shop", "sql")
        _some_turns(paddock, 3)
        first = paddock.up.child("worker")
        frozen = [first, *first.children(recursive=True)]
        for process in frozen:
            process.suspend()
        other = Process("worker", log=paddock.folder / "other.log", environment=_another_worker(paddock))
        try:
            await _is_what_nobody_disturbed(paddock, id, tmp_path)
            before, objects = paddock.download(id), paddock.objects()
            for process in frozen:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()
            wait_for("the first one is back", lambda: "local-1" in _live_workers(paddock))
            second = paddock.start("shop", "json")
            assert paddock.ended(second)["status"] == "completed"
        finally:
            other.end()
        assert paddock.download(id) == before
        assert [key for key in paddock.objects() if key in objects] == objects
        assert len(paddock.objects()) == 2
        assert not paddock.copies()


async def test_a_store_that_is_killed_in_the_middle_costs_no_byte(tmp_path: Path) -> None:
    """S3's parts have 5 MiB at least, so this one is larger."""
    with new_place("dumps", len(WEED_PORTS)) as where, _S3(where) as s3:
        url = f"s3://{BUCKET}/dumps"
        environment = {**aws_environ(s3.endpoint), "PADDOCK_OBJECT_STORE": url}
        with place(rows=300_000, environment=environment) as paddock:
            id = paddock.start("shop", "sql")
            _some_turns(paddock, 3)
            s3.kill()
            wait_for("the dump has noticed", lambda: _failures(paddock, id), 120)
            s3.start()
            paddock.client.run_now(_job_of(paddock, id))
            _some_turns(paddock, 2)
            _kill(paddock, "worker")
            await _is_what_nobody_disturbed(paddock, id, tmp_path)
            store = open_store(url, environ=aws_environ(s3.endpoint))
            assert len([entry async for entry in store.list("")]) == 1
            assert await open_parts(store).abort("exports") == 0
            assert not paddock.copies()


async def _is_what_nobody_disturbed(paddock: Place, id: str, scratch: Path) -> None:
    status = paddock.ended(id, 300)
    assert status["status"] == "completed", json.dumps(paddock.job(id), indent=1)
    assert paddock.download(id) == await undisturbed(paddock, id, scratch), status
    assert status["restarts"] == 0, status


def _some_turns(paddock: Place, turns: int) -> Sequence[str]:
    """The dumps still at work, once they have had so many more turns, all together."""
    before = sum(wait_for("an answer", paddock.turns).values())

    def look() -> Sequence[str] | None:
        found = paddock.turns()
        return None if found is None or sum(found.values()) < before + turns else (*found, "")

    return wait_for("the dumps have moved on", look, 120)[:-1]


def _failures(paddock: Place, id: str) -> int:
    job = paddock.job(id) or {}
    return int(job.get("failure_count", 0)) + int(job.get("cluster_count", 0))


def _job_of(paddock: Place, id: str) -> str:
    status = paddock.status(id)
    assert status is not None
    return str(status["job"])


def _kill(paddock: Place, role: str) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        paddock.up.child(role).kill()


def _another_worker(paddock: Place) -> dict[str, str]:
    secret = paddock.client.request("POST", "/api/tokens", body={"name": "other", "role": "worker"})["data"]["token"]
    return clean_environment(
        PADDOCK_SERVER=paddock.up.address["url"],
        PADDOCK_TOKEN=secret,
        PADDOCK_DATA=str(paddock.up.data),
        PADDOCK_OBJECT_STORE=str(paddock.up.data / "objects"),
        PADDOCK_WORKER_ID="other",
        PADDOCK_WORKER_PORT="0",
    )


def _live_workers(paddock: Place) -> list[str]:
    found = paddock.client.request("GET", "/api/workers")["data"]
    return [worker["worker_id"] for worker in found if worker["live"]]


class _S3:
    """A server that can be killed and started again on its data."""

    def __init__(self, where: ServerPlace) -> None:
        self._where = where
        self._running = contextlib.ExitStack()
        self.endpoint = ""

    def __enter__(self) -> "_S3":
        self.start()
        return self

    def start(self) -> None:
        self._server = self._running.enter_context(seaweed_at(self._where))
        self.endpoint = self._server.endpoint

    def kill(self) -> None:
        self._server.kill()

    def __exit__(self, *problem: object) -> None:
        self._running.close()
