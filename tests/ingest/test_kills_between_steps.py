"""Whoever is killed between two steps of a fetch, of hooks or of a publish: what is published is what the source has, once.

No luck is needed. A command waits at its gate, and the end of a step waits for a lock that the test holds, until the kill.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from tests.ingest.conftest import NUMBERS, SEVENS
from tests.ingest.test_kills import CONFIGURATION, ended, published
from tests.processes.running import Up, alive, clean_environment, data_folder, gone, running_up, wait_for

# Five kills are five starts of a control plane, or five leases of a worker; `test_kills.py` has two kills in the shorter run.
pytestmark = [pytest.mark.slow, pytest.mark.long]

# Each command says that it is here, and goes on when it may: once for its batch.
GATE = """
import os, time
place = os.path.join({folder!r}, "{name}-" + os.environ["PADDOCK_BATCH"])
open(place + ".at", "a").write(f"{{os.getpid()}} ")
while not os.path.exists(place + ".go"): time.sleep(0.01)
"""
# By step: what its end must have, which somebody else may hold.
HELD = {
    "fetch": "SELECT FROM ingest_runs FOR UPDATE",
    "hooks": "SELECT FROM ingest_batches FOR UPDATE",
    "publish": "LOCK TABLE ingest_files IN EXCLUSIVE MODE",
}
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
TOTAL, BATCH_SIZE = 10, 4


class Place:
    """A whole Paddock on a database of the test's own."""

    def __init__(self, up: Up, role: str, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self.up, self.role, self.connection = up, role, connection
        self.folder = up.data.parent

    def kill(self) -> None:
        process = self.up.child(self.role)
        process.kill()
        wait_for("another one runs", lambda: self.up.child(self.role).pid != process.pid)

    def at(self, name: str) -> None:
        path = self.folder / f"{name}.at"
        wait_for(f"{name} is at its gate", lambda: path.exists() and path.read_text())

    def go(self, *names: str) -> None:
        for name in names:
            (self.folder / f"{name}.go").touch()

    @asynccontextmanager
    async def held(self, step: str) -> AsyncIterator[None]:
        """The end of a step waits inside its transaction while the body runs."""
        async with self.connection.transaction():
            await self.connection.execute(HELD[step])
            yield

    async def waits(self) -> None:
        async with asyncio.timeout(60):
            while not await self.connection.fetchval(WAITS):
                await self.connection.execute("SELECT pg_stat_clear_snapshot()")

    def launchers(self) -> Sequence[psutil.Process]:
        """Commands of sources and what starts them."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if str(self.folder) in " ".join(process.cmdline()) and "launcher.py" in " ".join(process.cmdline()):
                    found.append(process)
        return [process for process in found if alive(process)]


def prepare(folder: Path) -> None:
    for name, file, text in (("fetch", "numbers_source.py", NUMBERS), ("hooks", "sevens_hook.py", SEVENS)):
        (folder / file).write_text(GATE.format(folder=str(folder), name=name) + text)
    (folder / "paddock.toml").write_text(CONFIGURATION.format(python=sys.executable))


@pytest.mark.parametrize("role", ["serve", "worker"])
async def test_killed_between_any_two_steps_nothing_is_lost_and_nothing_left(dsn: str, role: str) -> None:
    # A killed control plane must find its worker's session alive; a killed worker is to be missed soon.
    lease = "60" if role == "serve" else "4"
    with data_folder() as data:
        prepare(data.parent)
        settings = clean_environment(PADDOCK_DATABASE_URL=dsn, PADDOCK_LEASE_SECONDS=lease)
        connection = await asyncpg.connect(dsn)
        try:
            with running_up(data, "--port", "0", environment=settings) as up:
                await _killed_at_each_step(Place(up, role, connection))
        finally:
            await connection.close()


async def _killed_at_each_step(place: Place) -> None:
    with place.up.client() as client:
        run = client.request("POST", "/api/ingest/runs", body={"source": "numbers"})["data"]["id"]
    place.at("fetch-0")
    place.kill()
    place.go("fetch-0")
    place.at("hooks-0")
    place.kill()

    async def end_of(step: str, before: Callable[[], None]) -> None:
        async with place.held(step):
            before()
            await place.waits()
            place.kill()

    await end_of("publish", lambda: place.go("hooks-0"))
    place.at("fetch-1")
    await end_of("fetch", lambda: place.go("fetch-1"))
    place.at("hooks-1")
    await end_of("hooks", lambda: place.go("hooks-1"))
    place.go("fetch-2", "hooks-2")

    found: dict[str, Any] = ended(place.up, run)
    assert (found["status"], found["batches"], found["waiting_bytes"]) == ("completed", {"published": 3}, 0)
    assert published(place.up) == [n for n in range(1, TOTAL + 1) if n % 7]
    wait_for("no command is left", lambda: gone(place.launchers()))
    wait_for("no step's folder is left", lambda: not [*place.up.data.glob("scratch/*/*")])
    if place.role == "serve":  # nobody's work was done twice: a draft that is left would be a step that was
        wait_for("only published drafts are left", lambda: _drafts(place.up.data) == 3)


def _drafts(data: Path) -> int:
    return len({path.parent for path in data.glob("objects/ingest/*/*/*/*/*/*") if path.is_file()})
