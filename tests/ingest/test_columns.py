"""Declared columns hold exactly what a record says; a record with a value that does not fit is rejected."""

import datetime
import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pyarrow.parquet as pq
import pytest

from paddock.declared_types import parse
from paddock.ingest import runs
from paddock.ingest.column_values import Misfit, column_values
from paddock.ingest.columns import column_type
from tests.ingest.conftest import Bench

ID = "0195b0e8-7c3a-7000-8000-000000000001"
FITS: list[tuple[str, str, Any]] = [
    ("STRING", '"é\\u0000"', "é\0"),
    ("INT8", "-128", -128),
    ("INT16", "32767", 32767),
    ("INT32", "-2147483648", -(2**31)),
    ("INT64", "9223372036854775807", 2**63 - 1),
    ("FLOAT", "0.5", 0.5),
    ("DOUBLE", "1e300", 1e300),
    ("DOUBLE", "7", 7.0),
    ("BOOL", "true", True),
    ("DATE", '"2026-02-28"', datetime.date(2026, 2, 28)),
    ("TIMESTAMP", '"2026-02-28T12:00:00.123456+02:00"', datetime.datetime.fromisoformat("2026-02-28T10:00:00.123456")),
    ("TIMESTAMP", '"2026-02-28T12:00:00"', datetime.datetime.fromisoformat("2026-02-28T12:00:00")),
    ("UUID", f'"{ID}"', UUID(ID)),
    ("BLOB", '"AAEC"', b"\0\1\2"),
    ("DECIMAL(38,2)", "123456789012345678901234567890123456.78", Decimal("123456789012345678901234567890123456.78")),
    ("DECIMAL(5,2)", '"-1.5"', Decimal("-1.50")),
    ("LIST(INT64)", "[1, null, 3]", [1, None, 3]),
    ("MAP(INT64, STRING)", '{"1": "a"}', [(1, "a")]),
    ("STRUCT(a INT64, b LIST(DATE))", '{"b": ["2026-01-01"], "c": 1}', {"a": None, "b": [datetime.date(2026, 1, 1)]}),
    ("INT64", "null", None),
]
MISFITS: list[tuple[str, str]] = [
    ("STRING", "1"),
    ("INT8", "128"),
    ("INT16", "-32769"),
    ("INT32", "2147483648"),
    ("INT64", "9223372036854775808"),
    ("INT64", "1.0"),
    ("INT64", "true"),
    ("FLOAT", "1e39"),
    ("DOUBLE", '"1"'),
    ("DOUBLE", "1e999"),
    ("BOOL", "1"),
    ("DATE", '"2026-02-30"'),
    ("DATE", "20260228"),
    ("TIMESTAMP", '"yesterday"'),
    ("UUID", '"not one"'),
    ("BLOB", '"%%%"'),
    ("DECIMAL(5,2)", "1000.00"),
    ("DECIMAL(5,2)", "1.005"),
    ("DECIMAL(5,2)", "1e999999999"),
    ("DECIMAL(5,2)", '"NaN"'),
    ("LIST(INT64)", '[1, "2"]'),
    ("LIST(INT64)", "{}"),
    ("MAP(INT64, STRING)", '{"one": "a"}'),
    ("STRUCT(a INT64)", '{"a": "b"}'),
    ("STRUCT(a INT64)", "[]"),
]


@pytest.mark.parametrize(("type", "value"), MISFITS)
def test_a_misfit_is_named_by_its_column_and_never_by_its_value(type: str, value: str) -> None:
    with pytest.raises(Misfit) as refused:
        column_values(f'{{"c": {value}}}'.encode(), {"c": parse(type)})
    assert str(refused.value) == f"the value of 'c' is no {parse(type)}"


async def test_every_type_is_published_exactly(bench: Bench) -> None:
    names = [f"c{index}" for index in range(len(FITS))]
    record = "{" + ", ".join(f'"{name}": {value}' for name, (_, value, _) in zip(names, FITS, strict=True)) + "}"
    _give(bench, [record], dict(zip(names, (type for type, _, _ in FITS), strict=True)))
    await bench.run("typed")
    [row] = await bench.rows("typed")
    assert [row[name] for name in names] == [expected for _, _, expected in FITS]


async def test_what_does_not_fit_is_rejected_with_its_reason_and_the_rest_is_published(bench: Bench) -> None:
    _give(bench, ['{"n": 1}', '{"n": "one"}', "{}", "[1]"], {"n": "INT64"})
    run = await bench.run("typed")
    assert [(row["id"], row["n"]) for row in await bench.rows("typed")] == [("0", 1), ("2", None), ("3", None)]
    [file] = await runs.files(bench.core.db, "typed")
    folder = bench.folder / "data" / "objects" / file.manifest.rpartition("/")[0]
    [rejected] = pq.read_table(folder / "rejected.parquet").to_pylist()
    assert (rejected["id"], orjson.loads(rejected["data"])) == ("1", {"n": "one"})
    assert rejected["reason"] == "column_mismatch: the value of 'n' is no INT64"
    assert (await runs.counts(bench.core.db, run))["published"]["rejected"] == 1


def _give(bench: Bench, data: list[str], columns: dict[str, str]) -> None:
    lines = "".join(f'{{"id": {n}, "data": {one}}}\n' for n, one in enumerate(data))
    text = f"""
import os
open(os.environ["PADDOCK_OUT"] + "/records.jsonl", "w").write({lines!r})
open(os.environ["PADDOCK_OUT"] + "/session.json", "w").write({json.dumps({"session": 1, "has_more": False})!r})
"""
    bench.source("typed", text, columns=columns)


@pytest.mark.parametrize(
    ("name", "type"),
    [("data", "INT64"), ("Batch", "INT64"), ("a b", "INT64"), ("", "INT64"), ("n", "NUMBER"), ("n", "DECIMAL(39,0)")],
)
def test_a_column_that_cannot_be_is_refused(name: str, type: str) -> None:
    with pytest.raises(ValueError, match=r"column|type|DECIMAL"):
        column_type(name, type)
