"""The databases in an instance's folder: `db/{number}/graph.db`, and `current`, which names the one that is asked.

`current` is replaced as a whole and only when the database it names is complete, so a kill at any point leaves the old
one or the new one. What it does not name is a leftover, removed at the next start or change.
"""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec

from paddock.graphs.starting import replace

FILE = "graph.db"
# `nodes` and `edges`, each a list of tables.
Definitions = dict[str, list[dict[str, Any]]]


class Current(msgspec.Struct, frozen=True):
    """`definitions` are the tables as `POST /load` declared them, without files, with what algorithms added."""

    number: int
    counts: dict[str, dict[str, int]]
    dangling_edges: dict[str, int]
    definitions: Definitions

    def properties(self) -> dict[str, dict[str, str]]:
        """For each label and edge type the types of its properties."""
        nodes = {
            table["label"]: {column["name"]: column["type"] for column in (table["key"], *table["properties"])}
            for table in self.definitions["nodes"]
        }
        edges = {
            table["type"]: {column["name"]: column["type"] for column in table["properties"]}
            for table in self.definitions["edges"]
        }
        return {**nodes, **edges}


class Databases:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files = folder / "files"

    def current(self) -> Current | None:
        """None: nothing was ever loaded here, or `current` cannot be read, which is the same."""
        try:
            _number, _, facts = (self._folder / "current").read_text().partition("\n")
            found = msgspec.json.decode(facts, type=Current)
        except (OSError, msgspec.MsgspecError):
            return None
        return found if self.path(found.number).exists() else None

    def path(self, number: int) -> Path:
        return self._folder / "db" / str(number) / FILE

    def new_place(self, number: int) -> Path:
        """Where the database of that number is to be made, in an empty folder."""
        place = self.path(number)
        shutil.rmtree(place.parent, ignore_errors=True)
        place.parent.mkdir(parents=True)
        return place

    def copy(self, source: int, target: int) -> Path:
        """Blocks while it copies."""
        place = self.new_place(target)
        shutil.copyfile(self.path(source), place)
        return place

    def publish(self, current: Current) -> None:
        """From here on a restart opens this one."""
        sync(self.path(current.number))
        # The number alone on its line is for people and scripts.
        facts = msgspec.json.encode(current).decode()
        replace(self._folder / "current", f"{current.number}\n{facts}\n")
        sync(self._folder)

    def drop_others(self, *kept: int) -> None:
        names = {str(number) for number in kept}
        with contextlib.suppress(FileNotFoundError):
            for entry in (self._folder / "db").iterdir():
                if entry.name not in names:
                    shutil.rmtree(entry, ignore_errors=True)

    def drop_files(self) -> None:
        shutil.rmtree(self.files, ignore_errors=True)

    def size(self, number: int) -> int:
        try:
            return sum(file.stat().st_size for file in self.path(number).parent.iterdir())
        except OSError:
            return 0


def sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
