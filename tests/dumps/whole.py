"""A whole Paddock in processes of its own that dumps databases, and what an undisturbed render of the same state gives."""

import base64
import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import duckdb

from paddock.client import Client, PaddockError
from paddock.dumps.composing import Composer
from paddock.dumps.database_settings import DuckdbDatabase, SqliteDatabase
from paddock.dumps.duckdb.source import DuckdbSource
from paddock.dumps.model import DumpOptions, Format
from paddock.dumps.source import FileSource
from paddock.dumps.sqlite.source import SqliteSource
from paddock.dumps.writing import DumpDraft, PartWriter, complete
from paddock.storage.parts import open_parts
from paddock.storage.store import open_store
from tests.processes.running import Up, clean_environment, data_folder, running_up, wait_for

# A dead worker is missed soon, and a turn is one part.
RESTLESS = {
    "PADDOCK_BEAT_SECONDS": "0.2",
    "PADDOCK_LEASE_SECONDS": "1.5",
    "PADDOCK_RESCUE_SECONDS": "0.2",
    "PADDOCK_DUMPS_SLICE_SECONDS": "0.001",
}
KINDS = ("dump:shop", "dump:lake", "dump:books")
CONFIGURATION = """
[dumps]
part_bytes = 65536
[dumps.databases.shop]
type = "sqlite"
path = "shop.db"
[dumps.databases.lake]
type = "duckdb"
path = "lake.duckdb"
"""


BULKY = 24_000


@dataclass
class Place:
    up: Up
    folder: Path
    client: Client

    def start(self, database: str, format: str, **options: Any) -> str:
        body = {"async": True, "database": database, "format": format, **options}
        return str(self.client.request("POST", "/export/dump", body=body)["result"]["jobId"])

    def status(self, id: str) -> dict[str, Any] | None:
        """None while nobody answers: the control plane may be what was killed."""
        try:
            found: dict[str, Any] = self.client.request("GET", f"/export/jobs/{id}", params={"v": 2})["result"]
            return found
        except PaddockError as error:
            if not error.passes:
                raise
            return None

    def ended(self, id: str, seconds: float = 120) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found = self.status(id)
            return found if found is not None and found["status"] not in ("pending", "in_progress") else None

        return wait_for(f"dump {id} ends", look, seconds)

    def download(self, id: str) -> bytes:
        return b"".join(self.client.download(f"/export/jobs/{id}/download"))

    def job(self, id: str) -> dict[str, Any] | None:
        """None as above."""
        status = self.status(id)
        try:
            return None if status is None else self.client.get(status["job"])
        except PaddockError as error:
            if not error.passes:
                raise
            return None

    def turns(self) -> dict[str, int] | None:
        """Of each dump that has not ended."""
        try:
            found = [job for kind in KINDS for job in self.client.list(kind=kind, most=20)]
        except PaddockError as error:
            if not error.passes:
                raise
            return None
        return {job["id"]: job["turn_count"] for job in found if job["completed_at"] is None}

    def objects(self) -> list[str]:
        root = self.up.data / "objects"
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())

    def copies(self) -> list[Path]:
        return [path for path in self.folder.glob(".*.dumps/*/*") if path.is_file()]

    def source(self, database: str) -> FileSource:
        if database == "shop":
            return SqliteSource(SqliteDatabase(type="sqlite", path=self.folder / "shop.db"))
        return DuckdbSource(DuckdbDatabase(type="duckdb", path=self.folder / "lake.duckdb"))


@contextlib.contextmanager
def place(rows: int, environment: Mapping[str, str] | None = None, more: str = "", bulk: int = 0) -> Iterator[Place]:
    """`more`: of the configuration; `bulk`: bytes of text beside the rows, which nothing makes much smaller."""
    with data_folder() as data:
        write_sqlite(data.parent / "shop.db", rows, bulk)
        write_duckdb(data.parent / "lake.duckdb", rows, bulk)
        (data.parent / "paddock.toml").write_text(CONFIGURATION + more)
        settings = clean_environment(**{**RESTLESS, **(environment or {})})
        with running_up(data, "--port", "0", environment=settings) as up, up.client() as client:
            yield Place(up, data.parent, client)


def write_sqlite(path: Path, rows: int, bulk: int = 0) -> None:
    shop = apsw.Connection(str(path))
    shop.pragma("journal_mode", "wal")
    shop.execute(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, total REAL, note BLOB);"
        "CREATE TABLE lines (order_id INT, position INT, what TEXT, PRIMARY KEY (order_id, position DESC)) WITHOUT ROWID;"
        "CREATE TABLE seen (name TEXT);"
        "CREATE INDEX orders_by_customer ON orders (customer);"
        "CREATE VIEW totals AS SELECT customer, sum(total) FROM orders GROUP BY 1"
    )
    with shop:
        shop.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO orders SELECT i, 'customer ' || i * 7919 % 1000, i / 7.0, "
            "CASE i % 5 WHEN 0 THEN NULL ELSE randomblob(i % 40) END FROM n",
            (rows,),
        )
        shop.execute("INSERT INTO lines SELECT id, id % 3, 'what it''s ' || id FROM orders")
        shop.execute("INSERT INTO seen SELECT hex(randomblob(30)) FROM orders")
        for _ in range(0, bulk, BULKY):
            shop.execute("INSERT INTO seen VALUES (?)", (base64.b64encode(os.urandom(BULKY * 3 // 4)).decode(),))
    shop.close()


def write_duckdb(path: Path, rows: int, bulk: int = 0) -> None:
    with duckdb.connect(str(path)) as lake:
        lake.execute("SET threads = 1")
        lake.execute(
            "CREATE TABLE events AS SELECT n AS id, md5(n::VARCHAR) AS name, n / 7.0 AS share, "
            "[n, n + 1] AS pair, {'a': n, 'b': 'x' || n} AS nested FROM range($rows) t(n)",
            {"rows": rows},
        )
        lake.execute("CREATE TABLE other AS SELECT id * 2 AS twice, name FROM events WHERE id % 3 = 0")
        lake.execute(
            "INSERT INTO other SELECT row, string_agg(to_base64(unhex(md5(row || ' ' || n))), '') "
            f"FROM range($rows) r(row), range({BULKY // 24}) t(n) GROUP BY row ORDER BY row",
            {"rows": bulk // BULKY},
        )


async def undisturbed(place: Place, id: str, scratch: Path) -> bytes:
    """What one process renders in one go, of the state that the dump stands for: the source did not change since."""
    job, status = place.job(id), place.status(id)
    assert job is not None
    assert status is not None
    result = job["result"]
    copy = scratch / f"{id}.db"
    source = place.source(status["database"])
    await source.copy(copy, _unheard)
    frozen = await source.open(copy, datetime.fromisoformat(result["point_in_time"]), DumpOptions())
    try:
        type = "sqlite" if status["database"] == "shop" else "duckdb"
        about = {"dump": id, "database": status["database"], "source": type}
        format: Format = status["format"]
        composer = Composer(frozen, format, DumpOptions(), about=about)
        store = open_store(str(scratch / "store"))
        draft = DumpDraft("once", f"{id}/once.dump", result["part_size"], composer.identity)
        draft.upload = await open_parts(store).begin(draft.key)

        async def save(kept: Any) -> None:
            json.dumps(kept)

        writer = PartWriter(store, open_parts(store), composer, draft, save, lambda at, size: None)
        assert await writer.write(lambda: False)
        await complete(store, open_parts(store), draft, writer.size)
        return await store.read(draft.key)
    finally:
        await frozen.close()


async def _unheard(done: int, total: int) -> None:
    pass
