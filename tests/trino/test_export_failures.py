"""Export jobs that a real Trino refuses, or that it does not answer: what the caller reads, and that the worker lives on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.trino.export_scene import IMPATIENT, TrinoScene, trino_scene
from tests.trino.server import TrinoServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MISSING = "Missing use case ID (X-Use-Case-Id header required)"


def runners() -> set[int]:
    found = psutil.Process().children()
    return {process.pid for process in found if any("worker.runner" in part for part in process.cmdline())}


async def test_what_trino_refuses_fails_for_good_and_the_worker_lives_on(
    trino: TrinoServer, tmp_path: Path, dsn: str
) -> None:
    denied, secured = {"user": "denied"}, {"requires_role": True, "role_catalog": "hivesec"}
    cases = [
        ("SELECT nope FROM orders", "warehouse", None, "column_not_found", "Column 'nope' cannot be resolved"),
        ("SELECT 1 FROM", "warehouse", None, "syntax_error", "mismatched input"),
        ("SELECT 1 AS n; SELECT 2 AS n", "warehouse", None, "syntax_error", "mismatched input ';'"),
        ("DELETE FROM orders", "warehouse", None, "not_a_query", "this text begins with 'DELETE'"),
        ("SELECT * FROM nation", "denied", None, "role_denied", "Access Denied: Cannot select from table"),
        ("SELECT 1 AS n", "secured", "nosuch", "role_denied", "nosuch"),
        ("SELECT 1 AS n", "secured", None, "missing_use_case_id", MISSING),
    ]
    async with trino_scene(trino, tmp_path, dsn, denied=denied, secured=secured) as scene, scene.working():
        before = await scene.completed(await scene.ask("SELECT 1 AS n"))
        alive = runners()
        for mode in ("direct", "unload"):
            for sql, engine, role, code, sentence in cases:
                job = await scene.failed(await scene.ask(sql, engine=engine, role=role, mode=mode))
                assert (job.error_code, sentence in (job.error_message or "")) == (code, True), job.error_message
        job = await scene.failed(await scene.ask("SELECT 1 AS n", engine="secured"))
        assert job.error_message == MISSING
        after = await scene.completed(await scene.ask("SELECT 1 AS n"))

        assert runners() == alive
        assert (await scene.rows(before)).to_pylist() == (await scene.rows(after)).to_pylist() == [{"n": 1}]
        assert await scene.unloads() == []


class Door:
    """In front of Trino: takes the first so many connections and never answers them, and passes on the others."""

    def __init__(self, trino: TrinoServer, silent: int) -> None:
        self._port = trino.ports.http
        self._left = silent
        self.swallowed = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            if self._left > 0:
                self._left -= 1
                self.swallowed += 1
                await reader.read()
            else:
                there, back = await asyncio.open_connection("127.0.0.1", self._port)
                await asyncio.gather(passed(reader, back), passed(there, writer))
        writer.close()


async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def behind(door: Door, folder: Path, dsn: str, trino: TrinoServer, timeout: float) -> AsyncIterator[TrinoScene]:
    server = await asyncio.start_server(door, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        slow = {"url": url, "request_timeout_seconds": timeout, "encodings": []}
        async with trino_scene(trino, folder, dsn, slow=slow) as scene, scene.working(IMPATIENT):
            yield scene
    finally:
        server.close()


async def test_an_engine_that_never_answers(trino: TrinoServer, tmp_path: Path, dsn: str) -> None:
    door = Door(trino, 1000)
    async with behind(door, tmp_path, dsn, trino, 0.5) as scene:
        job = await scene.failed(await scene.ask("SELECT 1 AS n", engine="slow"))

        assert job.error_message == "Direct export failed after 2 retries: TimeoutError"
        assert job.error_code == "engine_no_answer"
        assert door.swallowed == 3

        # What Trino is to write itself has started nothing yet, and waits until Trino is back.
        waiting = await scene.dead(await scene.ask("SELECT 1 AS n", engine="slow", mode="unload"), 1)
        assert (waiting.status, waiting.cluster_count, waiting.failure_count) == ("pending", 1, 0)
        assert waiting.errors[-1]["code"] == "engine_no_answer"

        done = await scene.completed(await scene.ask("SELECT 1 AS n"))
        assert done.rows == 1


async def test_an_engine_that_answers_the_third_time(trino: TrinoServer, tmp_path: Path, dsn: str) -> None:
    door = Door(trino, 2)
    async with behind(door, tmp_path, dsn, trino, 5) as scene:
        done = await scene.completed(await scene.ask("SELECT name FROM nation", engine="slow"))

        assert door.swallowed == 2
        assert len(await scene.rows(done)) == 25
        assert (await scene.job(done.job_id)).turn_count == 1
