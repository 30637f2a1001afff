"""A whole Paddock in processes of its own, with data to export: what a user has after `paddock up`."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from paddock.client import Client, PaddockError
from tests.processes.running import Up, clean_environment, data_folder, running_up, wait_for

ROWS = 5_000

CONFIGURATION = """
[engines.local]
type = "duckdb"
roots = ["files"]
[engines.everything]
type = "duckdb"
roots = ["."]
[engines.app]
type = "sqlite"
path = "app.db"
[destinations.lake]
url = "lake"
"""
# A mapping of what `write_data` writes.
PEOPLE = """\
name: people
description: Who knows whom.
nodes:
  - label: Person
    primary_key: {name: id, type: INT64}
    properties:
      - {name: name, type: STRING}
      - {name: score, type: DOUBLE}
    sql: |-
      SELECT id, name, score
      FROM 'people.csv'
edges:
  - type: KNOWS
    from_node: Person
    to_node: Person
    from_key: one
    to_key: other
    sql: SELECT id, id // 2 FROM 'people.csv' WHERE id < 100
"""


@dataclass
class Place:
    up: Up
    folder: Path
    client: Client
    opened: contextlib.ExitStack

    def token(self, name: str, role: str = "analyst", **grants: Any) -> Client:
        body = {"name": name, "role": role, **grants}
        secret = self.client.request("POST", "/api/tokens", body=body)["data"]["token"]
        return self.opened.enter_context(Client(self.up.address["url"], secret))

    def paddock(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [sys.executable, "-m", "paddock.cli", *arguments, "--data", str(self.up.data)],
            cwd=self.folder,
            env=clean_environment(),
            capture_output=True,
            timeout=120,
            check=False,
        )

    def export(self, client: Client | None = None, **body: Any) -> dict[str, Any]:
        """The export once it has ended. A failed one passes its lock to its cleanup: that is waited for."""
        asking = client or self.client

        def submitted() -> dict[str, Any] | None:
            try:
                return dict(asking.request("POST", "/api/exports", body={"engine": "local", **body})["data"])
            except PaddockError as refused:
                if refused.code != "lock_held":
                    raise
                return None

        return self.ended(wait_for("the lock is free", submitted)["id"], asking)

    def ended(self, id: str, client: Client | None = None) -> dict[str, Any]:
        asking = client or self.client

        def look() -> dict[str, Any] | None:
            found: dict[str, Any] = asking.request("GET", f"/api/exports/{id}", params={"wait": 20}, timeout=60)["data"]
            return found if found["status"] in ("completed", "failed", "cancelled") else None

        return wait_for(f"export {id} ends", look, 90)

    def files(self, folder: str = "objects") -> list[str]:
        """What is in the managed store, or in a destination."""
        root = self.up.data / folder if folder == "objects" else self.folder / folder
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def write_data(folder: Path) -> None:
    (folder / "files").mkdir()
    lines = [f"{number},name {number % 7},{number / 4}" for number in range(ROWS)]
    (folder / "files" / "people.csv").write_text("id,name,score\n" + "\n".join(lines) + "\n")
    app = apsw.Connection(str(folder / "app.db"))
    app.execute("CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT NOT NULL, photo BLOB)")
    app.executemany(
        "INSERT INTO person VALUES (?, ?, ?)", [(number, f"p{number}", bytes([number])) for number in range(9)]
    )
    app.close()


@contextlib.contextmanager
def place(more: str = "") -> Iterator[Place]:
    """`more`: to stand in its paddock.toml."""
    with data_folder() as data:
        write_data(data.parent)
        (data.parent / "paddock.toml").write_text(CONFIGURATION + more)
        with running_up(data, "--port", "0") as up, contextlib.ExitStack() as opened:
            yield Place(up, data.parent, opened.enter_context(up.client()), opened)
