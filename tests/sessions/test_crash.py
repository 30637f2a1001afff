"""Which commits must survive a crash of PostgreSQL. On a server of its own, with fsync, killed with SIGKILL."""

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from paddock.db.embedded import EmbeddedPostgres, embedded_postgres
from paddock.db.migrate import migrate
from paddock.jobs import rescuing
from paddock.jobs.core import Core, open_core
from paddock.jobs.kinds import Kinds
from paddock.metrics import Metrics
from tests.conftest import take_clock
from tests.kinds import TEST_KINDS
from tests.playing import read, submit, worker

pytestmark = pytest.mark.slow

# What is not flushed by its own commit stays in memory: long enough for the kill to come first.
LAZY = {"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "autovacuum": "off"}


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="paddock-crash-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[EmbeddedPostgres, Core]]:
    async with embedded_postgres(folder / "data", settings=LAZY) as server:
        await migrate(server.dsn)
        async with open_core(server.dsn, Kinds(TEST_KINDS), metrics=Metrics(CollectorRegistry())) as core:
            yield server, core


async def kill(server: EmbeddedPostgres) -> None:
    os.kill(server.pid, signal.SIGKILL)
    await server.died.wait()


async def test_a_take_over_survives_so_the_dead_attempts_finish_is_refused(folder: Path) -> None:
    async with running(folder) as (server, core):
        connection = await asyncpg.connect(server.dsn, server_settings={"synchronous_commit": "off"})
        clock = await take_clock(connection)
        [id] = await submit(core)
        zombie = await (await worker(core, "zombie")).claim_one()
        heir = await worker(core, "heir")
        while not (await rescuing.rescue(core)).given_back:
            await clock.advance(seconds=5)
            await heir.beat()
        # From here on nothing commits synchronously that could carry the give-back to the disk with it.
        taken = await heir.claim_one()
        assert taken.id == id
        await kill(server)
        connection.terminate()
    async with running(folder) as (_, core):
        job = await read(core, id)
        assert job.attempt_id in (None, taken.job.attempt_id)
        zombie.link = core.link()
        assert await zombie.finish(result="zombie") == "stale_attempt"
        assert not (await read(core, id)).ended


async def test_what_was_answered_is_still_true_and_a_lost_claim_is_harmless(folder: Path) -> None:
    async with running(folder) as (server, core):
        played = await worker(core)
        done, saved, released, cancelled = await submit(core, n=4)
        attempts = {attempt.id: attempt for attempt in await played.claim()}
        await attempts[done].finish(result=1)
        await attempts[saved].save({"n": 1})
        await attempts[released].release()
        await core.cancel([cancelled], actor="ann")
        [enqueued] = await submit(core)
        lost = {attempt.id: attempt for attempt in await played.claim()}
        assert set(lost) == {released, enqueued}
        await kill(server)
    async with running(folder) as (_, core):
        assert (await read(core, done)).result == 1
        assert (await read(core, saved)).saved == {"n": 1}
        assert (await read(core, cancelled)).status == "cancelled"
        again = {attempt.id: attempt for attempt in await (await worker(core)).claim()}
        for id, attempt in lost.items():
            attempt.link = core.link()
            job = await read(core, id)
            if id in again:
                assert await attempt.finish() == "stale_attempt"
                assert await again[id].finish() == "accepted"
            else:
                assert job.attempt_id == attempt.job.attempt_id, "the claim happened to be flushed"
