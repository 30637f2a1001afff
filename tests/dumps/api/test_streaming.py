"""`GET /export/dump` and its kin: rendered by a process of their own, whole or broken off."""

import asyncio
import csv
import io
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from fcntl import LOCK_EX, flock
from pathlib import Path

import httpx2
import orjson
import pytest
from fastapi import FastAPI

from paddock.child_processes.spawning import ChildProcess
from paddock.config import Config
from paddock.dumps import child, syncing
from paddock.dumps.settings import DumpSettings
from tests.api.conftest import Clients, serving
from tests.dumps.api.conftest import error
from tests.playing import until

ROWS = 2_000


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as made:
        made.execute("PRAGMA journal_mode = wal")
        made.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT, paid REAL)")
        made.executemany("INSERT INTO orders VALUES (?, ?, ?)", [(n, f"=thing {n}", n / 4) for n in range(ROWS)])
        made.execute("CREATE TABLE people (name TEXT)")
        made.execute("INSERT INTO people VALUES ('ann'), (NULL)")
    made.close()
    return path


@pytest.fixture
def config(config: Config, shop: Path) -> Config:
    databases = {
        "shop": {"type": "sqlite", "path": str(shop), "owners": ["ada"], "sync": True},
        "books": {"type": "postgres", "url": "postgresql://books.example/books"},
    }
    return config.with_settings(config.of(DumpSettings).model_copy(update={"databases": databases}))


@pytest.fixture
async def reader(app: FastAPI, clients: Clients) -> AsyncIterator[httpx2.AsyncClient]:
    """Ada, over a real socket: what a transport in memory cannot show is how an answer breaks."""
    async with serving(app) as (_, address):
        headers = {"Authorization": f"Bearer {clients.secrets['ada']}"}
        async with httpx2.AsyncClient(base_url=address, headers=headers, timeout=60) as client:
            yield client


@pytest.fixture(autouse=True)
async def nothing_left(config: Config) -> AsyncIterator[None]:
    yield
    await until(lambda: syncing.SLOTS.taken == 0)


def copies_of(shop: Path) -> list[str]:
    return [path.name for path in shop.with_name(".shop.db.dumps").glob("*") if path.is_dir()]


async def test_a_small_database_comes_as_sql_and_loads_back(reader: httpx2.AsyncClient, shop: Path) -> None:
    answered = await reader.get("/export/dump")

    assert answered.status_code == 200
    assert answered.headers["content-type"] == "application/x-sqlite3"
    assert answered.headers["content-disposition"].startswith('attachment; filename="database_dump.sql"')
    assert answered.headers["cache-control"] == "private, no-store"
    assert "content-length" not in answered.headers
    with sqlite3.connect(":memory:") as loaded:
        loaded.executescript(answered.text)
        assert loaded.execute("SELECT count(*), sum(paid) FROM orders").fetchone() == (ROWS, sum(range(ROWS)) / 4)
        assert loaded.execute("SELECT name FROM people ORDER BY rowid").fetchall() == [("ann",), (None,)]
    loaded.close()
    assert copies_of(shop) == []


async def test_a_table_comes_as_json_and_as_csv(reader: httpx2.AsyncClient) -> None:
    found = await reader.get("/export/json/people")
    assert found.headers["content-type"] == "application/json"
    assert found.headers["content-disposition"].startswith('attachment; filename="people_export.json"')
    assert found.json() == [{"name": "ann"}, {"name": None}]

    found = await reader.get("/export/csv/orders", params={"database": "shop"})
    assert found.headers["content-type"].startswith("text/csv")
    assert found.headers["content-disposition"].startswith('attachment; filename="orders_export.csv"')
    rows = list(csv.reader(io.StringIO(found.text)))
    assert rows[0] == ["id", "what", "paid"]
    assert (len(rows), rows[2]) == (ROWS + 1, ["1", "=thing 1", "0.25"])

    safe = await reader.get("/export/csv/orders", params={"csvSafe": True})
    assert list(csv.reader(io.StringIO(safe.text)))[2] == ["1", "'=thing 1", "0.25"]


async def test_a_table_with_slashes_in_its_name(reader: httpx2.AsyncClient, shop: Path) -> None:
    with sqlite3.connect(shop) as made:
        made.execute('CREATE TABLE "2026/11/sales" (n)')
    made.close()

    for written in ("2026%2F11%2Fsales", "2026/11/sales"):
        found = await reader.get(f"/export/json/{written}")
        assert (found.status_code, found.json()) == (200, [])
        assert found.headers["content-disposition"].startswith('attachment; filename="2026_11_sales_export.json"')


async def test_a_table_that_is_not_there(ada: httpx2.AsyncClient, shop: Path) -> None:
    for format in ("json", "csv"):
        answered = await ada.get(f"/export/{format}/t")
        assert error(answered) == (404, "unknown_table", "Table 't' does not exist.")
    assert error(await ada.get(f"/export/json/{'t' * 501}"))[0] == 422
    assert copies_of(shop) == []


async def test_a_database_that_does_not_say_so_is_not_streamed(grace: httpx2.AsyncClient) -> None:
    code, _, message = error(await grace.get("/export/dump", params={"database": "books"}))
    assert code == 400
    assert "POST /export/dump" in message
    assert "sync = true" in message


async def test_others_are_streamed_nothing(bob: httpx2.AsyncClient, ada: httpx2.AsyncClient) -> None:
    for path in ("/export/dump", "/export/json/orders", "/export/csv/orders"):
        assert error(await bob.get(path, params={"database": "shop"}))[0] == 404
        assert error(await ada.get(path, params={"database": "books"}))[0] == 404


async def test_a_database_that_is_away_says_why(ada: httpx2.AsyncClient, shop: Path) -> None:
    shop.unlink()
    code, _, message = error(await ada.get("/export/dump"))
    assert code in (400, 503)
    assert str(shop) not in message


DIES_WITH_US = "import os\nfrom paddock.child_processes.beginning import die_with\ndie_with(os.getppid())\n"


class Played:
    """A process in place of ours: what it writes, and when it ends, is the test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
        self.processes: list[ChildProcess] = []
        program = f"{DIES_WITH_US}import sys, time\nsys.stdin.readline()\nsay = sys.stdout.buffer\n{code}"
        command = [sys.executable, "-c", program]

        def played() -> ChildProcess:
            pipe = subprocess.PIPE
            made = ChildProcess(command, environment=dict(os.environ), stdin=pipe, stdout=pipe)
            self.processes.append(made)
            return made

        monkeypatch.setattr(syncing, "start", played)


BEGINS = "say.write(b'{\"begins\": true}\\n'); say.flush()\n"
FOREVER = "time.sleep(3600)\n"
# More than all buffers on the way hold, and yet no danger to who reads it whole.
FLOOD = f"for _ in range(512): say.write(b'x' * 65536)\n{FOREVER}"


async def test_a_late_error_breaks_the_answer(reader: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    Played(monkeypatch, BEGINS + "say.write(b'INSERT'); say.flush()\nsys.exit(1)")
    got = []
    async with reader.stream("GET", "/export/dump") as answered:
        assert answered.status_code == 200
        chunks = answered.aiter_bytes()
        got.append(await anext(chunks))
        with pytest.raises(httpx2.RemoteProtocolError):
            got.append(await anext(chunks))
    assert got == [b"INSERT"]


async def test_an_end_is_an_end(reader: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    Played(monkeypatch, BEGINS + "say.write(b'INSERT')")
    assert (await reader.get("/export/dump")).content == b"INSERT"


async def test_a_process_that_dies_before_it_begins_is_a_bug(
    reader: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    Played(monkeypatch, "sys.exit(3)")
    assert error(await reader.get("/export/dump"))[:2] == (500, "internal_error")


class TestPatience:
    @pytest.fixture
    def config(self, config: Config, longest: float) -> Config:
        return config.with_settings(config.of(DumpSettings).model_copy(update={"sync_max_seconds": longest}))

    @pytest.mark.parametrize("longest", [1.0])
    async def test_what_takes_too_long_to_begin_is_refused(
        self, reader: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        played = Played(monkeypatch, FOREVER)
        assert error(await reader.get("/export/dump"))[:2] == (503, "stream_timed_out")
        assert played.processes[0].returncode == -9

    @pytest.mark.parametrize("longest", [4.0])  # a process on a busy machine has begun by then
    async def test_what_takes_too_long_is_broken_off(
        self, reader: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        played = Played(monkeypatch, BEGINS + "say.write(b'x'); say.flush()\n" + FOREVER)
        with pytest.raises(httpx2.RemoteProtocolError):
            await reader.get("/export/dump")
        assert played.processes[0].returncode == -9


async def test_a_reader_that_is_too_slow_is_left(reader: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncing, "RATE_WINDOW", 0.3)
    played = Played(monkeypatch, BEGINS + FLOOD)
    async with reader.stream("GET", "/export/dump") as answered:
        assert answered.status_code == 200
        # Nothing is read: what the sockets hold is soon full.
        await until(lambda: bool(played.processes) and played.processes[0].returncode is not None)
        with pytest.raises(httpx2.RemoteProtocolError):
            async for _ in answered.aiter_bytes():
                pass


async def test_a_reader_that_is_fast_enough_is_not(reader: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncing, "RATE_WINDOW", 0.7)
    slowly = "for _ in range(20): say.write(b'x' * 65536); say.flush(); time.sleep(0.1)\n"
    Played(monkeypatch, BEGINS + slowly)
    assert len((await reader.get("/export/dump")).content) == 20 * 65536


async def test_a_reader_that_goes_away_ends_the_process(
    reader: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(monkeypatch, BEGINS + "say.write(b'x'); say.flush()\n" + FOREVER)
    async with reader.stream("GET", "/export/dump") as answered:
        assert answered.status_code == 200
    await until(lambda: played.processes[0].returncode == -9)


async def test_a_reader_that_goes_away_leaves_no_copy(reader: httpx2.AsyncClient, shop: Path) -> None:
    with sqlite3.connect(shop) as made:
        # More than all buffers on the way hold, so that the process is killed in the middle.
        made.execute("CREATE TABLE large AS SELECT hex(zeroblob(500000)) AS text FROM orders LIMIT 40")
    made.close()
    async with reader.stream("GET", "/export/dump") as answered:
        assert answered.status_code == 200
        assert len(copies_of(shop)) == 1
    await until(lambda: not copies_of(shop))


async def test_two_at_once_and_no_more(
    reader: httpx2.AsyncClient, grace: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    Played(monkeypatch, BEGINS + FLOOD)
    async with reader.stream("GET", "/export/dump"), reader.stream("GET", "/export/json/orders"):
        async with asyncio.timeout(60):
            refused = await grace.get("/export/csv/orders", params={"database": "shop"})
        assert error(refused)[:2] == (429, "too_many_streams")
        assert int(refused.headers["retry-after"]) > 0
    await until(lambda: syncing.SLOTS.taken == 0)
    monkeypatch.undo()
    assert (await reader.get("/export/json/people")).status_code == 200


def test_a_slot_nobody_has_any_more_is_free() -> None:
    slots = syncing.Slots(1)
    held = slots.take()
    assert held is not None
    assert slots.take() is None
    held.release()
    held.release()
    assert slots.taken == 0
    slots.take()
    assert slots.taken == 0


def test_what_a_killed_process_copied_goes_with_the_next(tmp_path: Path) -> None:
    def left(name: str, age: float) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "copy.db").write_bytes(b"half")
        (folder / child.LOCK).touch()
        os.utime(folder, (time.time() - age, time.time() - age))
        return folder

    abandoned, young, job = left("sync-1", 120), left("sync-2", 0), left("019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7", 120)
    busy = left("sync-3", 120)
    with (busy / child.LOCK).open() as held:
        flock(held, LOCK_EX)
        child.remove_abandoned(tmp_path)

    assert not abandoned.exists()
    assert young.exists()
    assert job.exists()
    assert busy.exists()


async def test_a_child_says_why_it_does_not_begin(shop: Path) -> None:
    out = io.BytesIO()
    asked = {
        "database": "shop",
        "settings": {"type": "sqlite", "path": str(shop)},
        "format": "json",
        "options": {"tables": ["t"]},
        "single": True,
    }
    assert await child.render(asked, out) == 0
    told = orjson.loads(out.getvalue())["error"]
    assert (told["code"], told["message"], told["transient"]) == ("unknown_table", "Table 't' does not exist.", False)
