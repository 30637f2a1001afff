"""Dumps whose worker dies again and again, now and then with the control plane or the store: the file is what nobody
disturbed. Four kills are one of the store, one of the control plane and two of a worker; `DUMP_KILLS=50 scripts/test --long`
kills more often, and takes 10 GB of disk."""

import contextlib
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from paddock.client import PaddockError
from paddock.storage.parts import open_parts
from paddock.storage.store import open_store
from tests.dumps.whole import Place, place, undisturbed
from tests.processes.running import Process, clean_environment, wait_for
from tests.storage.servers import BUCKET, WEED_PORTS, aws_environ, new_place, seaweed_at
from tests.storage.servers import Place as ServerPlace

MANY_KILLS = int(os.environ.get("DUMP_KILLS", "10"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(90 * max(MANY_KILLS, 10))]

# S3's parts have 5 MiB at least, each of them is a turn, and no dump may end before its last kill.
BULK_PER_KILL = 10 << 20
URL = f"s3://{BUCKET}/dumps"
DUMPS = [
    ("shop", "sql"),
    ("shop", "json"),
    ("shop", "csv"),
    ("shop", "sqlite"),
    ("lake", "sql"),
    ("lake", "json"),
    ("lake", "csv"),
]


@pytest.mark.parametrize("kills", [4, pytest.param(MANY_KILLS, marks=pytest.mark.long)])
async def test_kills_in_every_dump_change_no_byte_and_leave_nothing(kills: int, tmp_path: Path) -> None:
    chance = random.Random(20261116)
    with new_place("dumps", len(WEED_PORTS)) as where, _S3(where) as s3:
        environment = {**aws_environ(s3.endpoint), "PADDOCK_OBJECT_STORE": URL}
        with place(rows=10_000, environment=environment, bulk=kills * BULK_PER_KILL) as paddock:
            ids = [paddock.start(database, format) for database, format in DUMPS]
            # A kill before its first part may cost a dump its copy, and then it rightly begins anew.
            wait_for("each has sent a part", lambda: _had_a_turn(paddock, len(ids)), 180)
            for kill in range(1, kills + 1):
                running = _some_turns(paddock, chance.randint(1, len(ids)), hurry=kill % 4 == 0)
                assert len(running) == len(ids), f"One ended after {kill - 1} kills: make the databases larger."
                if kill % 4 == 3:
                    before = _failures(paddock)
                    s3.kill()
                    wait_for("a dump has noticed", lambda: _failures(paddock) > before, 120)  # noqa: B023  at once
                    s3.start()
                else:
                    _kill(paddock, "serve" if kill % 4 == 0 else "worker")
            for id in ids:
                await _is_what_nobody_disturbed(paddock, id, tmp_path)
            store = open_store(URL, environ=aws_environ(s3.endpoint))
            assert len([entry async for entry in store.list("")]) == len(ids)
            assert await open_parts(store).abort("exports") == 0
            assert not paddock.copies()


async def test_a_worker_that_wakes_after_another_has_ended_its_dump_changes_nothing(tmp_path: Path) -> None:
    # Many turns, so that it is met at work however late we look.
    with place(rows=12_000) as paddock:
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


async def _is_what_nobody_disturbed(paddock: Place, id: str, scratch: Path) -> None:
    status = paddock.ended(id, 60 * max(MANY_KILLS, 10))
    assert status["status"] == "completed", json.dumps(paddock.job(id), indent=1)
    assert paddock.download(id) == await undisturbed(paddock, id, scratch), status
    assert status["restarts"] == 0, status


def _had_a_turn(paddock: Place, dumps: int) -> bool:
    turns = paddock.turns() or {}
    return len(turns) == dumps and min(turns.values()) > 1


def _some_turns(paddock: Place, turns: int, *, hurry: bool = False) -> Sequence[str]:
    """The dumps still at work, once they have had so many more turns, all together. `hurry`: one that the store failed
    tries again in a minute, and need not wait so long."""
    before = sum(wait_for("an answer", paddock.turns).values())

    def look() -> Sequence[str] | None:
        found = paddock.turns()
        if found is not None and sum(found.values()) >= before + turns:
            return (*found, "")
        for id in (found or ()) if hurry else ():
            with contextlib.suppress(PaddockError):
                paddock.client.run_now(id)
        return None

    return wait_for("the dumps have moved on", look, 120)[:-1]


def _failures(paddock: Place) -> int:
    found = [paddock.client.get(id) for id in wait_for("an answer", paddock.turns)]
    return sum(job["failure_count"] + job["cluster_count"] for job in found)


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
