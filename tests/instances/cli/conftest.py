"""The command line of somebody whose `paddock up` has the sample's graph."""

from collections.abc import Iterator

import pytest

from tests.cli.conftest import Terminal, _forget_environment
from tests.instances.flights import FLIGHTS_OF_COMMANDS
from tests.processes.running import Up


@pytest.fixture(scope="session")
def flights() -> Iterator[Up]:
    with FLIGHTS_OF_COMMANDS.used() as running:
        yield running


@pytest.fixture
def terminal(flights: Up, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    _forget_environment(monkeypatch)
    return Terminal(flights.data, capsys)
