"""The sample of the demo as a running instance, for tests of what people use: one `paddock up`, one graph."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from paddock.cli.sample import MAPPING, write_sample
from paddock.client import Client, connect
from tests.processes.running import Up, clean_environment, data_folder, running_up

NAME = "flights"


@contextmanager
def running_sample() -> Iterator[Up]:
    """`paddock up` with the sample's files under its engine, and their mapping."""
    with data_folder() as data:
        sample = data.parent / "sample"
        write_sample(sample)
        engines = json.dumps({"duckdb": {"type": "duckdb", "roots": [str(sample)]}})
        # Nobody kills the worker here: on a busy machine it must not be taken for dead.
        environment = clean_environment(PADDOCK_ENGINES=engines) | {"PADDOCK_LEASE_SECONDS": "60"}
        with running_up(data, "--port", "0", environment=environment) as up:
            up.child("worker")
            with client_of(up) as client:
                client.mappings.create(**yaml.safe_load(MAPPING))
            yield up


class Shared:
    """One for all tests of a process that take it, whichever files they are in."""

    def __init__(self) -> None:
        self._users = 0
        self._stack = ExitStack()
        self._up: Up | None = None

    @contextmanager
    def used(self) -> Iterator[Up]:
        if self._up is None:
            self._up = self._stack.enter_context(running_sample())
            with client_of(self._up) as client:
                client.instances.create_and_wait(NAME, timeout=110)
        self._users += 1
        try:
            yield self._up
        finally:
            self._users -= 1
            if self._users == 0:
                self._up = None
                self._stack.close()


FLIGHTS = Shared()
# Its own: commands change mappings, and algorithms leave properties in the graph that others ask.
FLIGHTS_OF_COMMANDS = Shared()


def client_of(up: Up) -> Client:
    return connect(data=up.data)


def notebook_cells(path: Path) -> list[str]:
    """The code of a notebook, cell by cell."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
