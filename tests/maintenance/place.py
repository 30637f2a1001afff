"""A whole Paddock with a lake: `paddock up` as its own processes, a catalog in SQLite, and a gate that holds work."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from paddock.client import Client, PaddockError
from tests.maintenance import lake
from tests.maintenance.gates import VARIABLE
from tests.processes.running import Up, clean_environment, data_folder, running_up, until_status, wait_for

ROOT = Path(__file__).parents[2]


@dataclass
class Place:
    up: Up
    client: Client
    folder: Path

    @property
    def catalog(self) -> Catalog:
        return lake.opened(lake.settings_of(self.folder))

    def new_table(self, name: str, files: int = 10) -> None:
        """A table that a worker has looked at."""
        lake.make_table(lake.settings_of(self.folder), files, name=name)

        def look() -> bool:
            with contextlib.suppress(PaddockError):  # a busy machine: it is looked at all the same
                self.client.request("POST", f"/api/tables/lake/sales/{name}/look")
            found = self.client.request("GET", "/api/tables")["data"]
            return any(table["name"] == name for table in found)

        wait_for("it was looked at", look)

    def table(self, name: str) -> Table:
        return self.catalog.load_table(f"sales.{name}")

    def maintain(self, name: str, *actions: str, **body: Any) -> dict[str, Any]:
        answer = self.client.request(
            "POST", f"/tables/sales/{name}/maintenance", body={"actions": list(actions), **body}
        )
        job: dict[str, Any] = answer["data"]
        return job

    def ended(self, job: Mapping[str, Any]) -> dict[str, Any]:
        return until_status(self.client, job["id"], "completed", "failed", "cancelled")

    def cleanup_of(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """The end of the job that cleaned up after this one."""

        def look() -> dict[str, Any] | None:
            found = self.client.request("GET", "/api/jobs", params={"kind": job["kind"]})["data"]
            ids = [each["id"] for each in found if each["cleanup_of"] == job["id"] and each["completed_at"]]
            return self.client.get(ids[0]) if ids else None

        return wait_for("the cleanup has ended", look)

    def hold(self, what: str) -> None:
        (self.folder / "gate" / "reached").unlink(missing_ok=True)
        (self.folder / "gate" / "hold").write_text(what)

    def until_held(self) -> None:
        wait_for("somebody stands at the gate", (self.folder / "gate" / "reached").exists)

    def let_go(self) -> None:
        (self.folder / "gate" / "hold").unlink()


@contextlib.contextmanager
def place(catalog: str = "", engines: str = "", **settings: str) -> Iterator[Place]:
    """`catalog` and `engines` are further lines of the configuration."""
    with data_folder() as data:
        folder = data.parent
        (folder / "gate").mkdir()
        (folder / "paddock.toml").write_text(
            "[catalogs.lake]\n"
            'type = "sql"\n'
            f'properties = {{ uri = "sqlite:///{folder}/catalog.db", warehouse = "file://{folder}/warehouse", '
            '"py-io-impl" = "tests.maintenance.gates.GatedIO" }\n'
            f"{catalog}\n{engines}\n"
        )
        environment = clean_environment(
            **{
                VARIABLE: str(folder / "gate"),
                "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            },
            **settings,
        )
        with running_up(data, "--port", "0", environment=environment) as up, up.client() as client:
            yield Place(up, client, folder)
