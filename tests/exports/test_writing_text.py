"""CSV and JSON Lines, by example. What every value survives is in test_writing_properties."""

from decimal import Decimal
from pathlib import Path
from uuid import UUID

import duckdb
import orjson
import pyarrow as pa
import pyarrow.csv
import pytest

from paddock.exports.writing.options import OutputOptions
from paddock.exports.writing.text import json_text
from tests.exports.writing_support import place, text_of, write

ROWS = pa.record_batch(
    {
        "n": pa.array([1, None], pa.int64()),
        "text": pa.array(['say "hi", then\nleave', ""], pa.string()),
        "money": pa.array([Decimal("1.50"), Decimal("0.0000001")], pa.decimal128(20, 7)),
        "x": pa.array([float("nan"), -0.0], pa.float64()),
        "at": pa.array([0, 1], pa.timestamp("us", "UTC")),
        "raw": pa.array([b"\x00\xff", None], pa.binary()),
        "tags": pa.array([["a", None], []], pa.list_(pa.string())),
    }
)


async def written(tmp_path: Path, batch: pa.RecordBatch, file_format: str, **options: object) -> str:
    with place(tmp_path) as at:
        chosen = OutputOptions.model_validate(options)
        (part,) = await write(at, batch.schema, [batch], file_format, chosen)  # type: ignore[arg-type]
        return text_of(at, part)


async def test_csv_quotes_text_and_nothing_else(tmp_path: Path) -> None:
    assert await written(tmp_path, ROWS, "csv") == (
        '"n","text","money","x","at","raw","tags"\n'
        '1,"say ""hi"", then\nleave",1.5000000,NaN,1970-01-01 00:00:00.000000Z,"AP8=","[""a"",null]"\n'
        ',"",0.0000001,-0.0,1970-01-01 00:00:00.000001Z,,"[]"\n'
    )


async def test_csv_options(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": pa.array([1, None]), "b": ["x;y", None]})

    assert await written(tmp_path, batch, "csv", header=False, delimiter=";", null="NULL") == '1;"x;y"\nNULL;NULL\n'


@pytest.mark.parametrize("null", ["", "NULL", "\\N"])
async def test_null_and_text_that_looks_like_it_differ(tmp_path: Path, null: str) -> None:
    batch = pa.record_batch({"n": [1, 2, 3], "s": pa.array(["", null, None], pa.string())})
    text = await written(tmp_path, batch, "csv", null=null)

    read = pa.csv.read_csv(
        pa.py_buffer(text.encode()),
        convert_options=pa.csv.ConvertOptions(
            null_values=[null], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )
    assert read["s"].to_pylist() == ["", null, None]


async def test_a_number_that_looks_like_the_null_text_is_quoted(tmp_path: Path) -> None:
    batch = pa.record_batch({"n": pa.array([0, None, -1]), "m": [1, 2, 3]})

    assert await written(tmp_path, batch, "csv", header=False, null="0", csv_safe=True) == '"0",1\n0,2\n-1,3\n'


async def test_formulas_are_only_disarmed_when_asked_for(tmp_path: Path) -> None:
    cells = ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "fine", "", " =1", "a=1"]
    batch = pa.record_batch({"=name": cells, "n": pa.array([-1] * len(cells))})

    safe = await written(tmp_path, batch, "csv", csv_safe=True)
    assert pa.csv.read_csv(
        pa.py_buffer(safe.encode()), parse_options=pa.csv.ParseOptions(newlines_in_values=True)
    ).to_pydict() == {
        "'=name": ["'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\rx", "fine", "", " =1", "a=1"],
        "n": [-1] * len(cells),
    }
    assert "'" not in await written(tmp_path, batch, "csv")


async def test_json_lines(tmp_path: Path) -> None:
    assert await written(tmp_path, ROWS, "jsonl") == (
        '{"n":1,"text":"say \\"hi\\", then\\nleave","money":"1.5000000","x":"NaN","at":"1970-01-01T00:00:00.000000Z",'
        '"raw":"AP8=","tags":["a",null]}\n'
        '{"n":null,"text":"","money":"0.0000001","x":-0.0,"at":"1970-01-01T00:00:00.000001Z","raw":null,"tags":[]}\n'
    )


async def test_types_that_engines_bring_along(tmp_path: Path) -> None:
    identity = UUID("12345678-1234-5678-1234-567812345678")
    batch = pa.record_batch(
        {
            "uuid": pa.array([identity.bytes], pa.uuid()),
            "enum": pa.array(["red"]).dictionary_encode(),
            "took": pa.array([-1_500_001], pa.duration("us")),
            "seconds": pa.array([90], pa.duration("s")),
            "view": pa.array(["long enough to lie outside of the view"], pa.string_view()),
            "pair": pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
            "big": pa.array([[2**53 + 1]], pa.large_list(pa.uint64())),
            "keys": pa.array([[(1, None), (2, "b")]], pa.map_(pa.int32(), pa.string())),
        }
    )
    line = await written(tmp_path, batch, "jsonl")
    assert orjson.loads(line) == {
        "uuid": str(identity),
        "enum": "red",
        "took": "-1.500001",
        "seconds": "90",
        "view": "long enough to lie outside of the view",
        "pair": [1, 2],
        "big": [2**53 + 1],
        "keys": {"1": None, "2": "b"},
    }
    assert await written(tmp_path, batch, "csv", header=False) == (
        f'{identity},"red",-1.500001,90,"long enough to lie outside of the view","[1,2]","[9007199254740993]",'
        '"{""1"":null,""2"":""b""}"\n'
    )


async def test_uuids_inside_of_other_types(tmp_path: Path) -> None:
    one = UUID("12345678-1234-5678-1234-567812345678")
    uuids = pa.array([one.bytes], pa.binary(16)).cast(pa.uuid())
    batch = pa.record_batch(
        {
            "list": pa.ListArray.from_arrays([0, 1], uuids),
            "map": pa.MapArray.from_arrays([0, 1], uuids, uuids),
            "deep": pa.ListArray.from_arrays([0, 1], pa.StructArray.from_arrays([uuids], ["a"])),
            "none": pa.nulls(1, pa.list_(pa.list_(pa.uuid()))),
        }
    )
    line = await written(tmp_path, batch, "jsonl")
    text = str(one)
    assert orjson.loads(line) == {"list": [text], "map": {text: text}, "deep": [{"a": text}], "none": None}
    assert await written(tmp_path, batch, "csv", header=False) == (
        f'"[""{one}""]","{{""{one}"":""{one}""}}","[{{""a"":""{one}""}}]",\n'
    )


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
async def test_another_program_reads_the_csv(tmp_path: Path, compression: str) -> None:
    batch = pa.record_batch({"n": range(10_000), "s": [f'"{number}",\n' for number in range(10_000)]})
    with place(tmp_path) as at:
        (part,) = await write(
            at, batch.schema, [batch], "csv", OutputOptions.model_validate({"compression": compression})
        )
        ending = {"none": "", "gzip": ".gz", "zstd": ".zst"}[compression]
        assert part.name == f"part-00000.csv{ending}"
        read = duckdb.sql(f"SELECT * FROM read_csv('{at.path(part)}', header=true) ORDER BY n").fetchall()

    assert read == [(number, f'"{number}",\n') for number in range(10_000)]


@pytest.mark.parametrize("start", range(4))
def test_slices_of_maps_with_the_type_of_null_in_them(start: int) -> None:
    """Cast to lists, they abort the process."""
    type = pa.map_(pa.string(), pa.struct([("number", pa.int32()), ("nothing", pa.null())]))
    rows = [[("a", {"number": 1, "nothing": None}), ("b", None)], None, [], [("c", {"number": 2, "nothing": None})]]
    texts = ['{"a":{"number":1,"nothing":null},"b":null}', "null", "{}", '{"c":{"number":2,"nothing":null}}']
    assert json_text(pa.array(rows, type).slice(start)).to_pylist() == texts[start:]
