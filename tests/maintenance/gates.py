"""A FileIO that stands still before it writes or reads a file, so that a kill meets its victim there.

A catalog names it in `py-io-impl`. The folder of the gate is in TEST_GATE_OF_TABLES: while it holds a file `hold`, whose content is
part of a name, whoever is about to write such a file says so in `reached` and waits. Before the name of one that is read stands
`reading `."""

import os
import time
from pathlib import Path

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

VARIABLE = "TEST_GATE_OF_TABLES"


class GatedIO(PyArrowFileIO):
    def new_output(self, location: str) -> PyArrowFile:
        stand_still(location)
        return super().new_output(location)

    def new_input(self, location: str) -> PyArrowFile:
        stand_still(f"reading {location.rpartition('/')[2]}")
        return super().new_input(location)


def stand_still(what: str) -> None:
    gate = Path(os.environ[VARIABLE])
    hold = gate / "hold"
    while hold.exists() and hold.read_text() in what:
        (gate / "reached").touch()
        time.sleep(0.02)
