"""What the files look like: row groups, sizes, names, empty results, damage."""

import asyncio
import errno
import gc
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from paddock.exports.writing.collecting import GROUP_BYTES
from paddock.exports.writing.dictionaries import dictionary_columns
from paddock.exports.writing.options import Compression, Format, OutputOptions
from paddock.exports.writing.output import Output
from paddock.exports.writing.samples import written
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from paddock.storage.drafts import DraftFile
from paddock.storage.scratch import ScratchFile
from tests.exports.any_table import array_of, in_files
from tests.exports.writing_support import place, read_parquet, text_of, write

IDS = pa.schema([("id", pa.int64())])


def ids(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(start, start + count), pa.int64())], schema=IDS)


def noise(rows: int, size: int = 1000) -> pa.RecordBatch:
    random.seed(rows)
    return pa.record_batch({"b": pa.array([random.randbytes(size) for _ in range(rows)], pa.binary())})


async def test_small_batches_become_row_groups_of_the_asked_size(tmp_path: Path) -> None:
    with place(tmp_path) as at:
        options = OutputOptions(row_group_rows=10_000)
        (part,) = await write(at, IDS, [ids(start, 700) for start in range(0, 35_000, 700)], "parquet", options)
        metadata = pq.ParquetFile(at.path(part)).metadata
        groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]

    assert sum(groups) == 35_000
    # As many whole batches as fit: 14 of 700.
    assert groups == [9_800, 9_800, 9_800, 5_600]


async def test_a_batch_larger_than_a_group_is_cut(tmp_path: Path) -> None:
    with place(tmp_path) as at:
        parts = await write(at, noise(1).schema, [noise(2_000)], group_bytes=500_000)
        metadata = pq.ParquetFile(at.path(parts[0])).metadata
        found = read_parquet(at, parts)

    assert metadata.num_row_groups == 5
    assert found.column("b").combine_chunks().equals(noise(2_000).column("b"))


async def test_files_roll_on_encoded_bytes_and_keep_the_order(tmp_path: Path) -> None:
    with place(tmp_path) as at:
        batches = [noise(1_000) for _ in range(5)]
        parts = await write(
            at, batches[0].schema, batches, "parquet", OutputOptions(file_bytes=1 << 20, row_group_rows=1_000)
        )
        found = read_parquet(at, parts)

    assert [part.name for part in parts] == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert [part.rows for part in parts] == [2_000, 2_000, 1_000]
    assert found.equals(pa.Table.from_batches(batches))


async def test_well_compressed_rows_do_not_make_small_files(tmp_path: Path) -> None:
    """Rolling on Arrow bytes would cut here: 80 MB of them."""
    same = pa.record_batch({"s": pa.array(["the same long text again and again"] * 100_000)})
    with place(tmp_path) as at:
        parts = await write(at, same.schema, [same] * 20, "parquet", OutputOptions(file_bytes=1 << 20))

    assert len(parts) == 1


async def test_files_roll_early_when_the_scratch_space_is_pressed(tmp_path: Path) -> None:
    with place(tmp_path, budget=6_000_000) as at:
        batches = [noise(1_000) for _ in range(8)]
        parts = await write(at, batches[0].schema, batches, "parquet", OutputOptions(row_group_rows=1_000))
        found = read_parquet(at, parts)

    assert [part.rows for part in parts] == [5_000, 3_000]
    assert found.equals(pa.Table.from_batches(batches))


@pytest.mark.parametrize("batches", [[], [ids(0, 0)]], ids=["no batch", "an empty batch"])
async def test_no_rows_give_a_typed_empty_parquet_file(tmp_path: Path, batches: list[pa.RecordBatch]) -> None:
    with place(tmp_path) as at:
        (part,) = await write(at, IDS, batches)
        found = pq.ParquetFile(at.path(part))

        assert part.rows == 0
        assert found.metadata.num_rows == 0
        assert found.schema_arrow.equals(IDS)
        assert duckdb.sql(f"SELECT typeof(id) FROM '{at.path(part)}' UNION ALL SELECT 'none'").fetchall() == [("none",)]


ID = bytes(range(16))


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize(
    ("type", "value"),
    [
        (pa.list_(pa.uuid()), [ID, None]),
        (pa.large_list(pa.uuid()), [ID]),
        (pa.list_(pa.uuid(), 2), [ID, None]),
        (pa.map_(pa.uuid(), pa.uuid()), [(ID, ID)]),
        (pa.struct([("a", pa.uuid()), ("at", pa.time32("s"))]), {"a": ID, "at": 1}),
        (pa.list_(pa.struct([("a", pa.list_(pa.uuid()))])), [{"a": [ID]}]),
    ],
    ids=str,
)
async def test_a_uuid_inside_of_another_type_is_written(
    tmp_path: Path, type: pa.DataType, value: object, rows: int
) -> None:
    table = pa.table({"n": pa.array([1, 2], pa.int8()), "c": array_of([value, None], type)}).slice(0, rows)
    batches = table.to_batches() if rows else []
    with place(tmp_path) as at:
        found = read_parquet(at, await write(at, table.schema, batches))
        at.begin()
        by_key = await write(at, table.schema, batches, "parquet", OutputOptions(partition_by=("n",)))
        in_folders = read_parquet(at, by_key)

    assert found.schema.field("c").type == in_files(type)
    assert found.to_pylist() == table.to_pylist()
    assert in_folders["c"].to_pylist() == table["c"].to_pylist()


async def test_no_rows_give_a_header_in_csv_and_nothing_in_json_lines(tmp_path: Path) -> None:
    with place(tmp_path) as at:
        (part,) = await write(at, IDS, [], "csv")
        assert text_of(at, part) == '"id"\n'
        at.begin()
        (part,) = await write(at, IDS, [], "jsonl", OutputOptions(compression="zstd"))
        assert (part.name, text_of(at, part, "zstd")) == ("part-00000.jsonl.zst", "")


async def test_repeated_names_are_made_unique(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["x"]), pa.array([2.5])], names=["a", "a", "A"])
    with place(tmp_path) as at:
        found = read_parquet(at, await write(at, batch.schema, [batch]))

    assert found.to_pylist() == [{"a": 1, "a_1": "x", "A_2": 2.5}]


async def test_seconds_and_dates_in_milliseconds_become_what_parquet_has(tmp_path: Path) -> None:
    batch = pa.record_batch(
        {
            "s": pa.array([1], pa.timestamp("s", "UTC")),
            "d": pa.array([86_400_000], pa.date64()),
            "l": pa.array([[2]], pa.list_(pa.timestamp("s"))),
        }
    )
    with place(tmp_path) as at:
        found = read_parquet(at, await write(at, batch.schema, [batch]))

    assert found.schema.types == [pa.timestamp("ms", "UTC"), pa.date32(), pa.list_(pa.timestamp("ms"))]
    assert [column.cast(type).to_pylist() for column, type in zip(found.columns, batch.schema.types, strict=True)] == [
        column.to_pylist() for column in batch.columns
    ]


async def test_parquet_keeps_the_times_that_have_no_text(tmp_path: Path) -> None:
    batch = pa.record_batch({"t": pa.array([2**63 - 1, -(2**63)], pa.timestamp("us"))})
    with place(tmp_path) as at:
        found = read_parquet(at, await write(at, batch.schema, [batch]))
        assert found["t"].cast(pa.int64()).to_pylist() == [2**63 - 1, -(2**63)]
        at.begin()
        with pytest.raises(PermanentRunnerError) as refused:
            await write(at, batch.schema, [batch], "csv")

    assert refused.value.code == "value_out_of_range"


@pytest.mark.parametrize("file_format", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize(
    ("type", "code"),
    [
        (pa.month_day_nano_interval(), "type_not_written"),
        (pa.list_(pa.month_day_nano_interval()), "type_not_written"),
        (pa.struct([("a", pa.int8()), ("A", pa.int8())]), "repeated_field"),
    ],
)
def test_a_type_that_cannot_be_written_is_refused_before_the_first_row(
    tmp_path: Path, file_format: Format, type: pa.DataType, code: str
) -> None:
    with place(tmp_path) as at:
        with pytest.raises(PermanentRunnerError, match="'odd'") as refused:
            Output(at.draft, at.scratch, pa.schema([("odd", type)]), file_format)
        assert at.scratch_files() == []

    assert refused.value.code == code


async def test_an_engine_that_sends_other_types_than_declared_is_refused(tmp_path: Path) -> None:
    with place(tmp_path) as at:
        output = Output(at.draft, at.scratch, IDS)
        with pytest.raises(PermanentRunnerError, match="int32") as refused:
            await output.write(pa.record_batch({"id": pa.array([1], pa.int32())}))
        await output.abandon()

    assert refused.value.code == "schema_changed"


@pytest.mark.parametrize(
    ("file_format", "compression"), [("parquet", "zstd"), ("csv", "zstd"), ("jsonl", "gzip"), ("csv", "none")]
)
async def test_an_abandoned_output_leaves_no_scratch_file(
    tmp_path: Path, file_format: Format, compression: Compression
) -> None:
    with place(tmp_path) as at:
        output = Output(
            at.draft, at.scratch, IDS, file_format, OutputOptions(compression=compression, row_group_rows=1_000)
        )
        await output.write(ids(0, 2_500))
        assert len(at.scratch_files()) == 1
        await output.abandon()
        await output.abandon()
        # Arrow's writers end their file when they go, which must not count any more.
        gc.collect()

        assert at.scratch_files() == []
        assert at.scratch.used == 0
        assert [entry async for entry in at.draft.store.list(at.draft.prefix)] == []


async def test_a_full_scratch_space_is_said_as_such(tmp_path: Path) -> None:
    with place(tmp_path, budget=1_500_000) as at:
        output = Output(at.draft, at.scratch, noise(1).schema)
        await output.write(noise(3_000))
        with pytest.raises(TransientResourceError) as full:
            await output.close()
        await output.abandon()
        assert at.scratch.used == 0

    assert full.value.code == "disk_full"


def cut_off(file: ScratchFile) -> None:
    with file.path.open("r+b") as opened:
        opened.truncate(file.bytes - 3)


def flip_the_end(file: ScratchFile) -> None:
    with file.path.open("r+b") as opened:
        opened.seek(file.bytes - 20)
        opened.write(b"\xff" * 6)


def lose_a_row(file: ScratchFile) -> None:
    """A whole file, only not the one that was to be written."""
    pq.write_table(pa.table({"id": pa.array(range(2_999), pa.int64())}), file.path)


def change_a_type(file: ScratchFile) -> None:
    pq.write_table(pa.table({"id": pa.array(range(3_000), pa.int32())}), file.path)


@pytest.mark.parametrize(
    ("file_format", "compression", "damage"),
    [
        ("parquet", "zstd", cut_off),
        ("parquet", "zstd", flip_the_end),
        ("parquet", "zstd", lose_a_row),
        ("parquet", "zstd", change_a_type),
        ("csv", "none", cut_off),
        ("csv", "none", flip_the_end),
        ("csv", "gzip", cut_off),
        ("csv", "gzip", flip_the_end),
        ("jsonl", "zstd", cut_off),
        ("jsonl", "zstd", flip_the_end),
    ],
)
async def test_a_damaged_file_is_never_uploaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_format: Format, compression: Compression, damage: Any
) -> None:
    """As a disk would: what was written is not what is there."""
    closed = ScratchFile.close

    def close(file: ScratchFile) -> None:
        if not file.closed:
            closed(file)
            damage(file)

    monkeypatch.setattr(ScratchFile, "close", close)
    with place(tmp_path) as at:
        output = Output(at.draft, at.scratch, IDS, file_format, OutputOptions(compression=compression))
        await output.write(ids(0, 3_000))
        with pytest.raises(TransientResourceError) as damaged:
            await output.close()
        await output.abandon()

        assert damaged.value.code == "output_damaged"
        assert [entry async for entry in at.draft.store.list(at.draft.prefix)] == []
        assert at.scratch_files() == []


async def test_a_writer_that_fails_leaves_no_readable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: ScratchFile, data: Any) -> int:
        raise OSError(errno.EIO, "broken disk")

    with place(tmp_path) as at:
        output = Output(at.draft, at.scratch, IDS, "parquet", OutputOptions(row_group_rows=1_000))
        await output.write(ids(0, 1_000))
        (left,) = at.scratch.folder.iterdir()
        monkeypatch.setattr(ScratchFile, "write", full)
        with pytest.raises(OSError, match="broken disk"):
            await output.write(ids(1_000, 1_000))
        copy = at.folder / "copy.parquet"
        copy.write_bytes(left.read_bytes())
        await output.abandon()

        with pytest.raises(pa.ArrowInvalid):
            pq.ParquetFile(copy)


def test_dictionaries_are_for_values_that_repeat() -> None:
    random.seed(1)
    rows = 100_000
    country = [random.choice(["DE", "FR", "US", None]) for _ in range(rows)]
    email = [f"{random.random()}@example.com" for _ in range(rows)]
    table = pa.table(
        {
            "country": country,
            "email": email,
            "id": pa.array(range(rows), pa.int64()),
            "day": pa.array([number // 1_000 for number in range(rows)], pa.date32()),
            "score": [random.random() for _ in range(rows)],
            "ok": [number % 3 == 0 for number in range(rows)],
            "tags": pa.array([[random.choice("abc")] for _ in range(rows)], pa.list_(pa.string())),
            "inner": pa.array([{"country": a, "email": b} for a, b in zip(country, email, strict=True)]),
            "map": pa.array([[("k", b)] for b in email], pa.map_(pa.string(), pa.string())),
            # All different where the rows begin: only a sample spread over them sees the values repeat.
            "late": [email[number] if number < 20_000 else email[random.randrange(1_000)] for number in range(rows)],
            "nothing": pa.nulls(rows, pa.string()),
        }
    )

    assert dictionary_columns(table) == [
        "country", "day", "tags.list.element", "inner.country", "map.key_value.key", "late",
    ]  # fmt: skip


def test_a_dictionary_is_paid_once_for_all_rows_of_a_group() -> None:
    """In fewer rows these days would be smaller without one."""
    random.seed(1)
    rows = 128 << 10
    days = pa.array([random.randrange(-9_000, 14_000) for _ in range(rows)], pa.date32())
    amounts = pa.array([int(random.lognormvariate(9, 1.5)) for _ in range(rows)], pa.int64())
    table = pa.table({"day": days, "amount": amounts})

    assert dictionary_columns(table) == ["day"]
    assert dictionary_columns(table.slice(0, rows // 4)) == []
    for column, smaller in (("day", True), ("amount", False)):
        pages, dictionary = written(table[column].combine_chunks(), level=1, dictionary=True)
        assert (pages + dictionary < written(table[column].combine_chunks(), level=1)[0]) is smaller


async def test_the_chosen_dictionaries_are_in_the_file(tmp_path: Path) -> None:
    rows = 5_000
    batch = pa.record_batch({"country": ["DE", "FR"] * (rows // 2), "id": [f"id {number}" for number in range(rows)]})
    with place(tmp_path) as at:
        (part,) = await write(at, batch.schema, [batch])
        group = pq.ParquetFile(at.path(part)).metadata.row_group(0)

    assert group.column(0).has_dictionary_page
    assert not group.column(1).has_dictionary_page
    assert group.column(1).compression == "ZSTD"
    assert group.column(1).statistics.max == "id 999"


async def test_decimals_are_integers_that_other_readers_understand(tmp_path: Path) -> None:
    batch = pa.record_batch({"d": pc.cast(pa.array(["1.10", "-99999999.99"]), pa.decimal128(10, 2))})
    with place(tmp_path) as at:
        (part,) = await write(at, batch.schema, [batch])
        assert pq.ParquetFile(at.path(part)).schema.column(0).physical_type == "INT64"
        read = duckdb.sql(f"SELECT d::varchar, typeof(d) FROM '{at.path(part)}'").fetchall()

    assert read == [("1.10", "DECIMAL(10,2)"), ("-99999999.99", "DECIMAL(10,2)")]


def test_what_an_export_reserves() -> None:
    text, nested = pa.schema([("s", pa.string())]), pa.schema([("l", pa.list_(pa.int8()))])
    narrow = Output.reservation(IDS, "parquet", OutputOptions())
    wide = Output.reservation(text, "parquet", OutputOptions())

    assert narrow < wide <= 48 << 20
    for more in (
        Output.reservation(text, "csv", OutputOptions()),
        Output.reservation(nested, "parquet", OutputOptions()),
        Output.reservation(text, "parquet", OutputOptions(partition_by=("s",))),
    ):
        assert more == wide + GROUP_BYTES


@pytest.mark.parametrize("length", [20, 700, 20_000])
async def test_a_file_is_written_in_the_memory_that_was_reserved(tmp_path: Path, length: int) -> None:
    """As Arrow counts it, from the first batch to the last: the choice of encodings, which copies rows, included."""
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    rows = (1 << 20) // length
    held = pa.total_allocated_bytes()
    most = 0

    def batches() -> Iterator[pa.RecordBatch]:
        dice = random.Random(length)
        for _ in range(40):
            values = [dice.randbytes(length // 2).hex() for _ in range(rows)]
            yield pa.record_batch([pa.array(range(rows), pa.int64()), pa.array(values)], schema)

    stop = threading.Event()

    def watch() -> None:
        nonlocal most
        while not stop.wait(0.0005):
            most = max(most, pa.total_allocated_bytes() - held)

    with place(tmp_path) as at:
        watching = threading.Thread(target=watch)
        watching.start()
        try:
            await write(at, schema, batches())
        finally:
            stop.set()
            watching.join()

    assert most <= Output.reservation(schema, "parquet", OutputOptions())


async def test_the_last_rows_are_gone_before_their_file_is_uploaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was reserved is for rows or for an upload, not for both."""
    schema = pa.schema([("s", pa.string())])
    held, uploaded = pa.total_allocated_bytes(), []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(8):
            yield pa.record_batch([pa.array([f"{number}" * (1 << 20)])], schema)

    with place(tmp_path) as at:
        add = at.draft.add

        async def watched(file: ScratchFile, name: str) -> DraftFile:
            # The thread that wrote them lets go a moment later; the helper keeps its own last batch.
            async with asyncio.timeout(20):
                while pa.total_allocated_bytes() - held > 2 << 20:  # noqa: ASYNC110  # nothing tells when memory is freed
                    await asyncio.sleep(0.001)
            uploaded.append(name)
            return await add(file, name)

        monkeypatch.setattr(at.draft, "add", watched)
        await write(at, schema, batches())

    assert uploaded == ["part-00000.parquet"]
