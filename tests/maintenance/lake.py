"""A small lake for tests: a catalog in SQLite with its warehouse in a folder, tables of small files, and turns without a worker."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from paddock.jobs.errors import StaleAttempt
from paddock.jobs.model import AttemptId, JobId, JsonObject
from paddock.jobs.outcomes import Outcome
from paddock.jobs.turn import Turn
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import running
from paddock.maintenance.model import MaintenancePayload, Options, TableName

NAME = TableName(catalog="lake", namespace=("sales",), name="orders")


def settings_of(folder: Path, **more: Any) -> CatalogSettings:
    properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    return CatalogSettings(type="sql", properties={**properties, **more.pop("properties", {})}, **more)


def opened(settings: CatalogSettings) -> Catalog:
    return load_catalog("lake", **settings.all_properties("lake"))


def some_rows(first: int, count: int = 10) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "city": pa.array([f"city {id % 7}" if id % 5 else None for id in ids], pa.string()),
            "price": pa.array([id / 3 for id in ids], pa.float64()),
        }
    )


def make_table(
    settings: CatalogSettings, files: int = 10, properties: Mapping[str, str] | None = None, name: str = "orders"
) -> Table:
    catalog = opened(settings)
    catalog.create_namespace_if_not_exists("sales")
    table = catalog.create_table(f"sales.{name}", some_rows(0).schema, properties=dict(properties or {}))
    for number in range(files):
        table.append(some_rows(10 * number))
    return catalog.load_table(f"sales.{name}")


def rows_of(table: Table) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


class Link:
    """Keeps what is saved. `holder` says who has the job: everybody else's saves are refused."""

    def __init__(self, saved: JsonObject | None = None, on_save: Callable[[JsonObject], None] | None = None) -> None:
        self.saved: JsonObject = saved or {}
        self.saves = 0
        self.stale = False
        self.on_save = on_save
        self.reports: list[JsonObject] = []

    async def save(self, state: JsonObject, *, progress: bool) -> None:
        raise AssertionError("a blocking handler saves by save_blocking")

    def save_blocking(self, state: JsonObject, *, progress: bool) -> None:
        if self.on_save is not None:
            self.on_save(state)
        if self.stale:
            raise StaleAttempt
        self.saves += 1
        self.saved = orjson.loads(orjson.dumps(state))

    def report(self, progress: JsonObject) -> None:
        self.reports.append(progress)

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        pass


def turn_for(
    table: Table,
    actions: Sequence[str],
    link: Link,
    *,
    job: uuid.UUID | None = None,
    cleanup: bool = False,
    **payload: Any,
) -> Turn[MaintenancePayload]:
    options, name = Options(**payload.pop("options", {})), payload.pop("name", NAME)
    content = MaintenancePayload.model_validate(
        {"table": name, "uuid": str(table.metadata.table_uuid), "actions": actions, "options": options, **payload}
    )
    id = JobId(job or uuid.uuid4())
    return Turn(
        id=id,
        attempt_id=AttemptId(uuid.uuid4()),
        kind="maintenance:lake",
        payload=content,
        saved=link.saved or None,
        owner="ada",
        link=link,
        cleanup_of=id if cleanup else None,
    )


def maintain(
    settings: CatalogSettings, table: Table, actions: Sequence[str], link: Link | None = None, **more: Any
) -> Outcome:
    return running.maintain(turn_for(table, actions, link or Link(), **more), settings)


def files_below(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if path.is_file()}
