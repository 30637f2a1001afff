"""A database may have thousands of tables, and their names may be long: nothing that a dump saves, reports or leaves as
its result grows beyond what is taken. The played turn refuses what a worker would."""

import json
from itertools import islice
from pathlib import Path
from zipfile import ZipFile

import pytest

from paddock.dumps import composing, running, writing
from paddock.dumps.composing import TRAILER
from paddock.dumps.model import DumpOptions, DumpPayload, Format, counts_key
from paddock.dumps.resources import DumpResources
from tests.dumps.turning import CopiedDatabase, Job, configured, one_turn, to_its_end

MANY = {f"sales.customer_orders_of_region_{number:05}": [f"row of {number}"] for number in range(5_000)}


def many_tables(place: Path, monkeypatch: pytest.MonkeyPatch, tables: dict[str, list[str]]) -> None:
    (place / "shop.db").write_text(json.dumps(tables))
    monkeypatch.setattr(running, "file_source", lambda settings: CopiedDatabase(place / "shop.db"))


def new_job(format: Format = "sql") -> Job:
    return Job(
        DumpPayload(
            dump_id="export_20261116-093000_abc123",
            database="shop",
            format=format,
            options=DumpOptions(compress="none"),
        )
    )


@pytest.mark.parametrize(("format", "count"), [("sql", 5_000), ("json", 5_000), ("csv", 2_000)])
async def test_thousands_of_tables_are_dumped_turn_by_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format, count: int
) -> None:
    tables = dict(islice(MANY.items(), count))
    many_tables(tmp_path, monkeypatch, tables)
    # Small tables share a chunk: so that parts end at many of them.
    monkeypatch.setattr(composing, "ENOUGH", 32 << 10)
    job = new_job(format)
    resources = DumpResources(configured(tmp_path, dumps_slice_seconds=0.000001))
    finished = await to_its_end(job, resources)
    assert job.attempt > 3
    assert (finished.table_count, finished.rows, finished.tables) == (count, count, None)
    file = tmp_path / "store" / finished.key
    told = tmp_path / "store" / counts_key(finished.key)
    assert sorted(path for path in (tmp_path / "store").rglob("*") if path.is_file()) == [file, told]
    counts = dict.fromkeys(tables, 1)
    assert json.loads(told.read_bytes()) == counts
    if format == "sql":
        assert json.loads(file.read_bytes().splitlines()[-1].removeprefix(TRAILER))["tables"] == counts
    elif format == "json":
        assert {name: len(rows) for name, rows in json.loads(file.read_bytes()).items()} == counts
    else:
        with ZipFile(file) as archive:
            assert json.loads(archive.read("manifest.json"))["tables"] == counts
            assert len(archive.namelist()) == count + 1


async def test_as_many_tables_as_are_named_in_the_result_fit_into_the_saved_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {f"{number:04}{'n' * 18}": ["x" * 10_500] for number in range(1_190)}
    assert len(json.dumps(dict.fromkeys(named, 1), separators=(",", ":"))) > running.MOST_TABLES * 0.95
    many_tables(tmp_path, monkeypatch, named)
    job = new_job()
    finished = await to_its_end(job, DumpResources(configured(tmp_path)))
    assert finished.tables == dict.fromkeys(named, 1)
    assert finished.table_count == 1_190
    assert writing.ROLL - 20 < finished.size // finished.part_size < writing.ROLL, (
        "beside almost as many ETags as are kept"
    )


async def test_cancelled_when_its_file_is_whole_it_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many_tables(tmp_path, monkeypatch, MANY)
    # All of it in one turn, however slow the machine is.
    job, resources = new_job(), DumpResources(configured(tmp_path, dumps_slice_seconds=600))

    async def cancelled(*args: object) -> None:
        raise RuntimeError("cancelled here")

    monkeypatch.setattr(running, "_finish", cancelled)
    with pytest.raises(RuntimeError, match="cancelled here"):
        await one_turn(job, resources)
    assert job.saved is not None
    assert "whole" in job.saved
    await running.clean(job.turn(cleanup=True), resources)
    assert [path for path in tmp_path.rglob("*/*/*") if path.is_file()] == []


async def test_progress_is_told_however_long_the_names_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many_tables(tmp_path, monkeypatch, {f"{number:03}{'ä' * 300}": ["x"] for number in range(150)})
    job = new_job()
    await to_its_end(job, DumpResources(configured(tmp_path)))
    assert (job.reports[-1]["tables_total"], job.reports[-1]["rows"]) == (150, 150)
    assert "counts" not in job.reports[-1]
