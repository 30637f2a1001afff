"""From a frozen database to bytes: containers, frames, and that a position alone decides about a chunk."""

import csv
import gzip
import io
import json
import shutil
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from paddock.dumps.composing import TRAILER, Chunk, Composer, Position, Written
from paddock.dumps.model import Compression, DumpOptions, Format
from tests.dumps.frozen import InMemory, texts

TABLES = {"orders": texts(20), "Ordérs ,\n": texts(4), "empty": [], "a/b": texts(1), "A/B": texts(7)}


async def whole(composer: Composer) -> bytes:
    return b"".join([chunk async for chunk in composer.chunks()])


def composer(
    tables: Mapping[str, Sequence[str]], format: Format, compress: Compression = "none", *, single: bool = False
) -> Composer:
    return Composer(InMemory(tables), format, DumpOptions(compress=compress), single=single, about={"dump": "d"})


@pytest.mark.parametrize("tables", [TABLES, {"a": texts(5), "b": []}, {}], ids=["five", "two", "none"])
async def test_json_of_a_database_is_an_object_by_table(tables: Mapping[str, Sequence[str]]) -> None:
    found = json.loads(await whole(composer(tables, "json")))
    assert {name: [row["text"] for row in rows] for name, rows in found.items()} == dict(tables)


@pytest.mark.parametrize("rows", [0, 1, 3, 7])
async def test_json_of_one_table_is_an_array(rows: int) -> None:
    found = json.loads(await whole(composer({"only": texts(rows)}, "json")))
    assert [row["text"] for row in found] == texts(rows)


async def test_csv_of_one_table_is_a_plain_file_with_its_header() -> None:
    made = composer({"only": texts(7)}, "csv")
    assert not made.zipped
    assert made.extension == "csv"
    rows = list(csv.reader(io.StringIO((await whole(made)).decode(), newline="")))
    assert rows == [["n", "text"], *([str(number), text] for number, text in enumerate(texts(7)))]


async def test_csv_of_a_database_is_a_zip_whose_names_lead_back_to_the_tables() -> None:
    made = composer(TABLES, "csv", "zstd")  # a zip is compressed by itself
    assert (made.extension, made.media_type) == ("zip", "application/zip")
    with zipfile.ZipFile(io.BytesIO(await whole(made))) as archive:
        assert archive.testzip() is None
        manifest = json.loads(archive.read("manifest.json"))
        names = [name.lower() for name in archive.namelist()]
        assert len(set(names)) == len(names) == len(TABLES) + 1
        for name, table in manifest["files"].items():
            [_, *rows] = csv.reader(io.StringIO(archive.read(name).decode(), newline=""))
            assert [text for _, text in rows] == list(TABLES[table])
            assert archive.getinfo(name).date_time == (2026, 11, 16, 9, 30, 14)
    assert manifest["tables"] == {name: len(rows) for name, rows in TABLES.items()}
    assert manifest["pointInTime"] == "2026-11-16T09:30:15.250Z"


@pytest.mark.parametrize("rows", [3, 4000])
async def test_the_zip_is_read_by_unzip(rows: int, tmp_path: Path) -> None:
    tables = {"one": texts(rows, 900), "two/three": texts(rows), "empty": []}
    path = tmp_path / "dump.zip"
    path.write_bytes(await whole(composer(tables, "csv")))
    assert shutil.which("unzip"), "apt-get install unzip"
    subprocess.run(["unzip", "-q", str(path), "-d", str(tmp_path / "out")], check=True)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    for name, table in manifest["files"].items():
        with (tmp_path / "out" / name).open(newline="") as file:
            assert [text for _, text in list(csv.reader(file))[1:]] == tables[table]


async def test_a_zip_of_more_than_four_gigabytes_is_read(tmp_path: Path) -> None:
    """As if the first table had that many: a hole stands for them, and the position tells of it."""
    tables = {"first": texts(600, 900), "second": texts(5), "third": texts(7)}
    made, hole = Composer(InMemory(tables, chunk_rows=1_000), "csv", DumpOptions()), 5 << 30
    path = tmp_path / "dump.zip"
    position: Position | None = made.first
    with path.open("wb") as file:
        while position is not None:
            chunk = await made.render(position, Written())
            file.write(chunk.data)
            position = chunk.next
            if position is not None and position["section"] == 1 and file.tell() < hole:
                file.seek(hole, io.SEEK_CUR)
                position = {**position, "zip": {**position["zip"], "offset": position["zip"]["offset"] + hole}}

    assert path.stat().st_size > hole
    with zipfile.ZipFile(path) as archive:
        assert [entry.header_offset > hole for entry in archive.infolist()] == [False, True, True, True]
        assert archive.testzip() is None
        manifest = json.loads(archive.read("manifest.json"))
    for name, table in manifest["files"].items():
        told = subprocess.run(["unzip", "-p", str(path), name], check=True, capture_output=True, text=True).stdout
        assert [text for _, text in list(csv.reader(io.StringIO(told, newline="")))[1:]] == tables[table]


async def test_sql_ends_with_a_comment_that_counts_the_rows() -> None:
    made = await whole(composer(TABLES, "sql"))
    *statements, last = made.splitlines()
    assert statements[0] == b"BEGIN;"
    assert statements[-1] == b"COMMIT;"
    assert last.startswith(TRAILER)
    assert json.loads(last.removeprefix(TRAILER))["tables"] == {name: len(rows) for name, rows in TABLES.items()}


@pytest.mark.parametrize(("how", "suffix"), [("gzip", "sql.gz"), ("zstd", "sql.zst")])
async def test_frames_read_one_after_another_give_the_plain_file(how: Compression, suffix: str) -> None:
    tables = {"large": texts(4000, 800), "small": texts(3)}
    packed = composer(tables, "sql", how)
    assert packed.extension == suffix
    data = await whole(packed)
    plain = gzip.decompress(data) if how == "gzip" else pa.CompressedInputStream(io.BytesIO(data), "zstd").read()
    *rest, last = plain.splitlines()
    assert rest == (await whole(composer(tables, "sql"))).splitlines()[:-1]
    assert json.loads(last.removeprefix(TRAILER))["compress"] == how
    assert len(await positions(packed)) > 2


FORMATS = [
    ("sql", "none"),
    ("sql", "zstd"),
    ("json", "gzip"),
    ("csv", "none"),
]


@pytest.mark.parametrize(("format", "compress"), FORMATS)
async def test_a_chunk_is_what_its_position_says_whoever_renders_it(format: Format, compress: Compression) -> None:
    tables = {"large": texts(3000, 1600), "small": texts(3), "other": texts(1000, 1600)}
    first = await positions(composer(tables, format, compress))
    assert len(first) > 4
    for position, chunk in first:
        # Through JSON, as saved state goes.
        again = await composer(tables, format, compress).render(json.loads(json.dumps(position)), Written())
        assert again == chunk


async def positions(made: Composer) -> list[tuple[Position, Chunk]]:
    found = []
    position: Position | None = made.first
    while position is not None:
        chunk = await made.render(position, Written())
        found.append((position, chunk))
        position = chunk.next
    return found
