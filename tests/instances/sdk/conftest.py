"""One running Paddock with the sample's graph for all tests of this folder that ask it."""

import os
from collections.abc import Iterator

import pytest

from paddock.client import Client, GraphConnection
from tests.instances.flights import FLIGHTS, NAME, client_of
from tests.processes.running import Up


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PADDOCK_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def flights() -> Iterator[Up]:
    with FLIGHTS.used() as running:
        yield running


@pytest.fixture
def client(flights: Up) -> Iterator[Client]:
    with client_of(flights) as opened:
        yield opened


@pytest.fixture
def conn(client: Client) -> GraphConnection:
    return client.instances.connect(NAME)
