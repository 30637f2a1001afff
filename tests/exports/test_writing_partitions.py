"""partition_by: which rows land in which folder, and what a folder is called."""

import random
from datetime import date
from pathlib import Path
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.exports.writing.options import OutputOptions
from paddock.exports.writing.output import Output
from paddock.exports.writing.partitions import NULL, folder_of, hive_encoded
from paddock.jobs.errors import PermanentRunnerError
from tests.exports.writing_support import place, read_parquet, text_of, write


def by(*columns: str, **options: object) -> OutputOptions:
    return OutputOptions.model_validate({"partition_by": columns, **options})


async def test_rows_go_to_the_folder_of_their_values_in_their_order(tmp_path: Path) -> None:
    days = [date(2026, 1, 10), date(2026, 1, 9), None]
    batches = [pa.record_batch({"id": [n, n + 1, n + 2], "day": days, "n": pa.array([10, 9, None])}) for n in (0, 3, 6)]
    with place(tmp_path) as at:
        parts = await write(at, batches[0].schema, batches, "parquet", by("n", "day"))
        found = {part.name: pq.ParquetFile(at.path(part)).read().to_pydict() for part in parts}

    assert list(found) == [
        "n=9/day=2026-01-09/part-00000.parquet",
        "n=10/day=2026-01-10/part-00000.parquet",
        f"n={NULL}/day={NULL}/part-00000.parquet",
    ]
    assert list(found.values()) == [{"id": [1, 4, 7]}, {"id": [0, 3, 6]}, {"id": [2, 5, 8]}]


async def test_another_program_finds_every_value_again(tmp_path: Path) -> None:
    texts = ["a/b", "c=d", "100%", "", "ü", "..", " ", "a:b", 'q"', "line\nend", "#", NULL, None, "[x]"]
    batch = pa.record_batch({"id": range(len(texts)), "s": texts})
    with place(tmp_path) as at:
        parts = await write(at, batch.schema, [batch], "parquet", by("s"))
        assert len(parts) == len(texts)
        root = at.path(parts[0]).parents[1]
        read = duckdb.sql(
            f"SELECT id, s FROM read_parquet('{root}/*/*.parquet', hive_partitioning=true, hive_types={{'s': VARCHAR}})"
            " ORDER BY id"
        ).fetchall()

    # DuckDB knows neither the empty text nor a text equal to the name of NULL.
    assert [value for _, value in read if value not in (None, "", NULL)] == [
        text for text in texts if text not in (None, "", NULL)
    ]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_folder_gives_its_value_back(text: str) -> None:
    encoded = hive_encoded(text)

    assert unquote(encoded) == text
    assert encoded != NULL
    assert "/" not in encoded
    assert encoded.isascii() or not text.isascii()


def test_a_column_may_have_any_name() -> None:
    assert folder_of(["a/b=c", "d"], [None, "x y"]) == f"a%2Fb%3Dc={NULL}/d=x y"


async def test_a_thousand_partitions_and_no_more(tmp_path: Path) -> None:
    thousand = pa.record_batch({"id": range(1_000), "p": [f"{number:04d}" for number in range(1_000)]})
    one_more = pa.record_batch({"id": [1_000], "p": ["1000"]})
    with place(tmp_path) as at:
        output = Output(at.draft, at.scratch, thousand.schema, "jsonl", by("p"))
        await output.write(thousand)
        await output.write(one_more)
        with pytest.raises(PermanentRunnerError) as refused:
            await output.close()
        await output.abandon()
        assert at.scratch_files() == []
        assert at.scratch.used == 0

    assert refused.value.code == "too_many_partitions"


@pytest.mark.slow
async def test_a_thousand_partitions_are_written(tmp_path: Path) -> None:
    batch = pa.record_batch({"id": range(3_000), "p": [number % 1_000 for number in range(3_000)]})
    with place(tmp_path) as at:
        parts = await write(at, batch.schema, [batch], "jsonl", by("p"))

        assert [part.name for part in parts] == [f"p={number}/part-00000.jsonl" for number in range(1_000)]
        assert text_of(at, parts[7]) == '{"id":7}\n{"id":1007}\n{"id":2007}\n'


async def test_a_partition_has_full_row_groups_however_small_its_runs(tmp_path: Path) -> None:
    batches = [pa.record_batch({"id": range(n, n + 1_000), "p": [0, 1] * 500}) for n in range(0, 8_000, 1_000)]
    with place(tmp_path) as at:
        parts = await write(at, batches[0].schema, batches, "parquet", by("p", row_group_rows=4_000))
        groups = [pq.ParquetFile(at.path(part)).metadata.num_row_groups for part in parts]
        found = read_parquet(at, parts)["id"].to_pylist()

    assert groups == [1, 1]
    assert found == [*range(0, 8_000, 2), *range(1, 8_000, 2)]


async def test_a_spill_that_fills_the_scratch_space_is_emptied_and_names_go_on(tmp_path: Path) -> None:
    random.seed(5)
    batches = [
        pa.record_batch({"b": pa.array([random.randbytes(1_000) for _ in range(400)], pa.binary()), "p": [0, 1] * 200})
        for _ in range(5)
    ]
    with place(tmp_path, budget=2_400_000) as at:
        parts = await write(at, batches[0].schema, batches, "parquet", by("p"), group_bytes=batches[0].nbytes)
        found = read_parquet(at, parts)

    assert [(part.name, part.rows) for part in parts] == [
        ("p=0/part-00000.parquet", 600),
        ("p=1/part-00000.parquet", 600),
        ("p=0/part-00001.parquet", 400),
        ("p=1/part-00001.parquet", 400),
    ]
    expected = pa.Table.from_batches(batches)["b"].to_pylist()
    assert found["b"].to_pylist() == [
        *expected[0:1_200:2], *expected[1:1_200:2], *expected[1_200::2], *expected[1_201::2],
    ]  # fmt: skip


async def test_no_rows_give_one_file_with_all_columns(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    with place(tmp_path) as at:
        (part,) = await write(at, schema, [], "parquet", by("p"))

        assert part.name == "part-00000.parquet"
        assert pq.ParquetFile(at.path(part)).schema_arrow.equals(schema)


@pytest.mark.parametrize(
    ("columns", "said"),
    [(("nope",), "no column 'nope'"), (("x",), "double"), (("id", "x", "p"), "double"), (("id", "p"), "every column")],
)
def test_what_cannot_be_partitioned_by_is_refused_at_once(tmp_path: Path, columns: tuple[str, ...], said: str) -> None:
    fields = [("id", pa.int64()), ("p", pa.string())] + ([("x", pa.float64())] if "every" not in said else [])
    with place(tmp_path) as at, pytest.raises(PermanentRunnerError, match=said) as refused:
        Output(at.draft, at.scratch, pa.schema(fields), "parquet", by(*columns))

    assert refused.value.code == "bad_partition_by"


async def test_a_value_too_long_for_a_folder_is_refused(tmp_path: Path) -> None:
    batch = pa.record_batch({"id": [1], "p": ["x" * 300]})
    with place(tmp_path) as at:
        output = Output(at.draft, at.scratch, batch.schema, "parquet", by("p"))
        await output.write(batch)
        with pytest.raises(PermanentRunnerError, match="'p'") as refused:
            await output.close()
        await output.abandon()

    assert refused.value.code == "partition_value_too_long"
