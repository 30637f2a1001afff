"""Export jobs that a real Trino refuses, or that it does not answer: what the caller reads, and that the worker lives on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import orjson
import psutil
import pytest

from paddock.jobs.model import Job
from tests.conftest import DatabaseClock
from tests.trino.export_scene import ENDLESS, IMPATIENT, PLANNED, SCHEMA, TrinoScene, runners_of, trino_scene, until
from tests.trino.misbehaving import QUERY, Misbehaving, silence, status
from tests.trino.server import TrinoServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MISSING = "Missing use case ID (X-Use-Case-Id header required)"


def runners() -> set[int]:
    return {process.pid for process in runners_of(psutil.Process())}


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
    async with behind(door, tmp_path, dsn, trino, 10) as scene:
        done = await scene.completed(await scene.ask("SELECT name FROM nation", engine="slow"))

        assert door.swallowed == 2
        assert len(await scene.rows(done)) == 25
        assert (await scene.job(done.job_id)).turn_count == 1


def misbehaves(bad: Misbehaving, timeout: float = 60) -> dict[str, object]:
    """A timeout is for those that wait for silence: whoever answers may be slow."""
    return {"url": bad.url, "request_timeout_seconds": timeout, "patience_seconds": 0.2, "encodings": []}


async def test_an_engine_that_falls_silent_after_the_post(
    trino: TrinoServer, bad: Misbehaving, tmp_path: Path, dsn: str
) -> None:
    """Neither rows nor the end of the query can be had: that is no reason to forget how often it was tried."""
    bad.trouble = {"/page/0": [silence] * 3, "DELETE /page/0": [silence] * 100}
    async with trino_scene(trino, tmp_path, dsn, bad=misbehaves(bad, 1)) as scene, scene.working(IMPATIENT):
        job = await scene.failed(await scene.ask("SELECT n", engine="bad"))

        assert job.error_message == "Direct export failed after 2 retries: TimeoutError"
        assert bad.count("GET", "/page/0") == 3


async def test_a_query_that_cannot_be_stopped_holds_up_no_later_turn(
    trino: TrinoServer, bad: Misbehaving, tmp_path: Path, dsn: str
) -> None:
    bad.pages = [[[1]]]
    bad.trouble = {"DELETE /page/0": [silence] * 100}
    async with trino_scene(trino, tmp_path, dsn, bad=misbehaves(bad, 2)) as scene, scene.working(PLANNED):
        scene.plan("kill started 1")
        export = await scene.ask("SELECT n", engine="bad")
        await scene.dead(export, 1)
        await scene.run_now(export.job_id)
        done = await scene.completed(export)

        assert bad.count("DELETE", "/page/0") >= 1
        assert ((await scene.job(done.job_id)).turn_count, done.rows) == (2, 1)


async def test_a_source_that_always_fails_ends_the_export(
    trino: TrinoServer, bad: Misbehaving, tmp_path: Path, dsn: str
) -> None:
    """Each try saves its draft and its query; neither is progress."""
    bad.error = {"errorName": "JDBC_ERROR", "errorType": "EXTERNAL", "message": "The source is away"}
    async with trino_scene(trino, tmp_path, dsn, bad=misbehaves(bad)) as scene, scene.working():
        export = await scene.ask("SELECT n", engine="bad")
        for number in range(1, 6):
            assert (await scene.dead(export, number)).failure_count == number
            await scene.run_now(export.job_id)
        job = await scene.ended(export.job_id)

        assert (job.error_code, job.turn_count) == ("attempts_exhausted", 6)
        assert "The source is away" in (job.error_message or "")


NEXT = "UPDATE jobs SET saved = jsonb_set(saved, '{handle}', saved->'handle' || $2::jsonb) WHERE id = $1"


async def polled_at(scene: TrinoScene, job: Job, **handle: str) -> Job:
    """As its next turn left it, which asked there."""
    await scene.database.execute(NEXT, job.id, orjson.dumps(handle).decode())
    await scene.run_now(job.id)

    async def look() -> Job | None:
        found = await scene.job(job.id)
        assert not found.ended, (found.error_code, found.error_message)
        return found if found.status == "submitted" and found.turn_count > job.turn_count else None

    return await until("it is polled", look)


async def test_a_poll_that_fails_keeps_the_schedule_of_polls(
    trino: TrinoServer, bad: Misbehaving, tmp_path: Path, dsn: str, clock: DatabaseClock
) -> None:
    unload = {"unload_catalog": "hive", "unload_schema": SCHEMA, "unload_location": "local:///flaky"}
    flaky = {**unload, "other_urls": [bad.url], "patience_seconds": 0.2}
    bad.trouble = {"/page/0": [status(503)] * 1000}
    async with trino_scene(trino, tmp_path, dsn, flaky=flaky) as scene, scene.working():
        export = await scene.ask(ENDLESS, engine="flaky", mode="unload")
        job = await scene.submitted(export)
        assert job.saved is not None
        here = job.saved["handle"]["next_uri"]
        for seconds, polls in ((3, 2), (5, 3), (8, 4)):
            job = await polled_at(scene, job, next_uri=f"{bad.url}/page/0")
            assert job.saved is not None
            assert (job.error_code, job.saved["poll_count"]) == ("engine_unavailable", polls)
            assert job.due_at == clock.at + timedelta(seconds=seconds)
        # And is polled on, as if nothing had been.
        job = await polled_at(scene, job, next_uri=here)
        assert (job.cluster_count, job.due_at) == (3, clock.at + timedelta(seconds=13))
        await scene.cancel(export)
        assert (await scene.cleaned(export)).status == "completed"


async def test_an_unload_whose_query_failed_starts_another_and_the_failure_counts(
    trino: TrinoServer, bad: Misbehaving, tmp_path: Path, dsn: str, clock: DatabaseClock
) -> None:
    unload = {"unload_catalog": "hive", "unload_schema": SCHEMA, "unload_location": "local:///flaky"}
    bad.error = {"errorName": "JDBC_ERROR", "errorType": "EXTERNAL", "message": "The source is away"}
    async with trino_scene(trino, tmp_path, dsn, flaky={**unload, "other_urls": [bad.url]}) as scene, scene.working():
        export = await scene.ask(ENDLESS, engine="flaky", mode="unload")
        first = await scene.submitted(export)
        assert first.saved is not None
        failed = await polled_at(scene, first, next_uri=f"{bad.url}/page/0", query_id=QUERY)
        assert (failed.error_code, failed.failure_count) == ("jdbc_error", 1)
        async with scene.admin() as engine:
            await engine.cancel(first.saved["handle"])
        await scene.run_now(export.job_id)
        second = await scene.submitted(export, turns=3)
        assert second.saved is not None
        assert second.failure_count == 1, "a poll that goes on is no progress"
        assert second.saved["draft"] != first.saved["draft"]
        assert second.saved["query_id"] not in (QUERY, first.saved["query_id"])
        await scene.cancel(export)
        assert (await scene.cleaned(export)).status == "completed"


async def test_a_cluster_without_the_unload_function_is_exported_from_directly(
    trino: TrinoServer, tmp_path: Path, dsn: str
) -> None:
    engine = {"unload_function": True, "unload_location": "local:///nowhere"}
    async with trino_scene(trino, tmp_path, dsn, starburst=engine) as scene, scene.working():
        done = await scene.unloaded(await scene.ask("SELECT nationkey FROM nation", engine="starburst", mode="unload"))
        job = await scene.job(done.job_id)

        assert (job.result["mode"], done.rows) == ("direct", 25)
        assert job.result["direct_because"] == "This cluster has no function system.unload."
