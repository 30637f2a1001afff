"""How hard zstd tries: more where it pays, as much as asked where somebody asks."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paddock.exports.writing import levels
from paddock.exports.writing.levels import HARD, zstd_levels
from paddock.exports.writing.options import OutputOptions
from tests.exports.writing_support import Place, place, read_parquet, write

ROWS = 60_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    chance = random.Random(3)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randrange(3, 10))) for _ in range(3_000)]
    texts = [" ".join(chance.choices(words, k=6)) for _ in range(ROWS)]
    return pa.table(
        {
            "text": texts,
            "hex": [chance.randbytes(16).hex() for _ in range(ROWS)],
            "noise": [chance.random() for _ in range(ROWS)],
            "country": pa.array(chance.choices(["Deutschland", "France"], k=ROWS)),
            "list": pa.array([[text] for text in texts], pa.list_(pa.string())),
            "inner": pa.array([{"text": text, "number": number} for number, text in enumerate(texts)]),
        }
    )


def test_words_are_worth_more_work_and_random_values_are_not(table: pa.Table) -> None:
    assert zstd_levels(table, ["country"], {}) == dict.fromkeys(["text", "list.list.element", "inner.text"], HARD)


def test_differences_are_tried_as_they_are_written() -> None:
    """Plain, such times are smaller at a higher level; as differences nothing is left to find."""
    chance = random.Random(3)
    times = pa.table({"at": pa.array(sorted(chance.randrange(1 << 42) for _ in range(4 * ROWS)), pa.timestamp("us"))})

    assert zstd_levels(times, [], {}) == {"at": HARD}
    assert zstd_levels(times, [], {"at": "DELTA_BINARY_PACKED"}) == {}


def test_a_small_file_pays_for_no_trial(table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "written", never)

    assert zstd_levels(table.slice(0, 5_000), [], {}) == {}
    with pytest.raises(AssertionError):
        zstd_levels(table, [], {})


async def test_the_level_stands_in_the_file(tmp_path: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with place(tmp_path) as at:
        chosen = await sizes(at, table, OutputOptions())
        # Who asks for a level gets it everywhere, and no trial.
        monkeypatch.setattr(levels, "written", never)
        fast, hard, hardest = [await sizes(at, table, OutputOptions(level=level)) for level in (1, HARD, 9)]

    assert hardest["text"] < hard["text"] < fast["text"]
    assert hard["hex"] != fast["hex"]
    assert chosen == {**fast, **{path: hard[path] for path in ("text", "list.list.element", "inner.text")}}


async def test_another_compression_has_no_level(
    tmp_path: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "written", never)
    with place(tmp_path) as at:
        await sizes(at, table, OutputOptions(compression="snappy"))


async def sizes(at: Place, table: pa.Table, options: OutputOptions) -> dict[str, int]:
    at.begin()
    (part,) = await write(at, table.schema, table.to_batches(), "parquet", options)
    assert read_parquet(at, [part]).equals(table)
    group = pq.ParquetFile(at.path(part)).metadata.row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    return {chunk.path_in_schema: chunk.total_compressed_size for chunk in chunks}


def never(*_: Any, **__: Any) -> tuple[int, int]:
    raise AssertionError("Nothing should be tried here.")
