"""The app in the test's process; its instances are real processes of this machine, which can be held where a test says so."""

import sys
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from paddock.config import Config
from paddock.instances import running_on, talking
from paddock.runtimes.local import LocalRuntime
from tests.instances.world import until

COMMAND = (sys.executable, "-m", "tests.instances.processes.held_server")


@pytest.fixture
async def runtime(config: Config, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalRuntime]:
    made = LocalRuntime(config.data / "instances", COMMAND)
    made.place()
    monkeypatch.setitem(running_on.OPENED, ("local", config.data), made)
    yield made
    for found in await made.list():
        name = found.name

        async def gone(name: str = name) -> bool:
            return await made.delete(name, grace=timedelta(0))

        await until(f"{name} is gone", gone)
    await talking.close_session()
