"""The points at which an attempt can die or stand still: before and after each save, commit and batch of deletes."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg.store import Bucket, LocalFiles
from tests.maintenance.lake import Link, opened


class Killed(BaseException):
    """As SIGKILL: no handler of an exception sees it."""


class Points:
    """Counts the points that the current thread passes, and ends or holds it at one of them."""

    def __init__(self, at: str | int | None = None, *, hold: bool = False) -> None:
        self.passed: list[str] = []
        self.at = at
        self.hold = hold
        self.held = threading.Event()
        self.let_go = threading.Event()

    def point(self, name: str) -> None:
        number = sum(each.rpartition(" ")[0] == name for each in self.passed) + 1
        self.passed.append(f"{name} {number}")
        if self.at not in (len(self.passed) - 1, self.passed[-1]):
            return
        if not self.hold:
            raise Killed
        self.held.set()
        assert self.let_go.wait(60)


HERE = threading.local()


def pass_point(name: str) -> None:
    points: Points | None = getattr(HERE, "points", None)
    if points is not None:
        points.point(name)


@contextmanager
def counted(points: Points) -> Iterator[Points]:
    HERE.points = points
    try:
        yield points
    finally:
        HERE.points = None


@contextmanager
def uncounted() -> Iterator[None]:
    """For what somebody else does meanwhile, in the same thread."""
    held, HERE.points = getattr(HERE, "points", None), None
    try:
        yield
    finally:
        HERE.points = held


class PointLink(Link):
    def save_blocking(self, state: dict[str, Any], *, progress: bool) -> None:
        pass_point("before save")
        super().save_blocking(state, progress=progress)
        pass_point("after save")


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> None:
    for catalog in (SqlCatalog, RestCatalog):
        monkeypatch.setattr(catalog, "commit_table", gated("commit", catalog.commit_table))
    for store in (LocalFiles, Bucket):
        monkeypatch.setattr(store, "delete", gated("delete", store.delete))


def gated(what: str, do: Callable[..., Any]) -> Callable[..., Any]:
    def passing(self: object, *arguments: Any) -> Any:
        pass_point(f"before {what}")
        answer = do(self, *arguments)
        pass_point(f"after {what}")
        return answer

    return passing


@contextmanager
def put_back(folder: Path) -> Iterator[None]:
    """The folder as it was, afterwards."""
    kept = folder.with_name(f"{folder.name}-kept")
    shutil.copytree(folder, kept)
    try:
        yield
    finally:
        shutil.rmtree(folder)
        kept.rename(folder)


def all_is_reachable(settings: CatalogSettings) -> Table:
    """The table, once every file of every snapshot was found and every ref read."""
    table = opened(settings).load_table("sales.orders")
    seen: set[str] = set()

    def is_there(location: str) -> None:
        if location not in seen:
            seen.add(location)
            assert table.io.new_input(location).exists(), location

    for snapshot in table.metadata.snapshots:
        is_there(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            is_there(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(table.io):
                is_there(entry.data_file.file_path)
    for ref in table.metadata.refs.values():
        table.scan(snapshot_id=ref.snapshot_id).to_arrow()
    return table
