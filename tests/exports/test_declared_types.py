"""What a mapping declares against what a query gives: kept exactly, or a mismatch at its column."""

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from paddock.engines.engine import Column
from paddock.exports.arrow_types import arrow_of, conformer, declared_name, mismatches
from paddock.exports.model import DeclaredColumn
from paddock.exports.types import BadType, parse
from paddock.jobs.errors import PermanentRunnerError


def given(type: pa.DataType, native: str = "x") -> list[Column]:
    return [Column("given", type, native)]


def declared(type: str) -> list[DeclaredColumn]:
    return [DeclaredColumn(name="wanted", type=type)]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.int8(), "INT64"),
        (pa.uint32(), "INT64"),
        (pa.int64(), "DECIMAL(19,0)"),
        (pa.float32(), "DOUBLE"),
        (pa.decimal128(10, 2), "DECIMAL(12,4)"),
        (pa.timestamp("ms"), "TIMESTAMP"),
        (pa.timestamp("us", "UTC"), "TIMESTAMP"),
        (pa.large_string(), "STRING"),
        (pa.list_(pa.int32()), "LIST(INT64)"),
        (pa.map_(pa.string(), pa.int8()), "MAP(STRING, INT16)"),
        (pa.struct([("a", pa.int16()), ("b", pa.string())]), "STRUCT(x INT64, y STRING)"),
    ],
)
def test_what_keeps_every_value_fits(found: pa.DataType, wanted: str) -> None:
    assert mismatches(given(found), declared(wanted)) == []


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.int64(), "INT32"),
        (pa.uint64(), "INT64"),
        (pa.int64(), "DECIMAL(18,0)"),
        (pa.int64(), "DOUBLE"),
        (pa.float64(), "FLOAT"),
        (pa.float64(), "DECIMAL(10,2)"),
        (pa.decimal128(10, 2), "DECIMAL(10,1)"),
        (pa.decimal128(10, 2), "DECIMAL(10,3)"),
        (pa.timestamp("ns"), "TIMESTAMP"),
        (pa.date32(), "TIMESTAMP"),
        (pa.string(), "INT64"),
        (pa.int64(), "STRING"),
        (pa.string(), "UUID"),
        (pa.struct([("a", pa.int16())]), "STRUCT(x INT64, y STRING)"),
    ],
)
def test_what_could_lose_one_is_a_mismatch(found: pa.DataType, wanted: str) -> None:
    [wrong] = mismatches(given(found, "their word"), declared(wanted))

    assert (wrong.column, wrong.expected, wrong.found) == ("wanted", wanted, "their word")


def test_a_uuid_is_what_the_engine_calls_one() -> None:
    some = UUID("0a1b2c3d-4e5f-4071-8293-a4b5c6d7e8f9")
    text = pa.record_batch([pa.array([str(some), None])], ["given"])
    exact = pa.record_batch([pa.array([some.bytes, None], pa.binary(16)).cast(pa.uuid())], ["given"])

    assert conformer(given(pa.string(), "UUID"), declared("UUID"))(text).column(0).to_pylist() == [some, None]
    assert conformer(given(pa.uuid(), "uuid"), declared("UUID"))(exact).column(0).to_pylist() == [some, None]
    assert conformer(given(pa.uuid(), "uuid"), declared("STRING"))(exact).column(0).to_pylist() == [str(some), None]
    assert declared_name(given(pa.string(), "UUID")[0]) == "UUID"


def test_missing_and_extra_columns_are_named() -> None:
    one, two = Column("a", pa.int64(), "bigint"), Column("b", pa.int64(), "bigint")

    [missing] = mismatches([one], [DeclaredColumn(name="a", type="INT64"), DeclaredColumn(name="c", type="DATE")])
    [extra] = mismatches([one, two], [DeclaredColumn(name="a", type="INT64")])

    assert (missing.column, missing.found) == ("c", "nothing")
    assert (extra.column, extra.expected) == ("b", "nothing")


def test_a_batch_gets_the_declared_names_and_types() -> None:
    at = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    found = [Column("a", pa.int8(), "tinyint"), Column("b", pa.timestamp("us", "UTC"), "timestamptz")]
    conform = conformer(
        found, [DeclaredColumn(name="n", type="DECIMAL(5,1)"), DeclaredColumn(name="t", type="TIMESTAMP")]
    )

    batch = conform(pa.record_batch([pa.array([7, None], pa.int8()), pa.array([at, None], found[1].type)], ["a", "b"]))

    assert batch.schema.names == ["n", "t"]
    assert batch.to_pylist()[0] == {"n": Decimal("7.0"), "t": at.replace(tzinfo=None)}
    assert batch.to_pylist()[1] == {"n": None, "t": None}


def test_a_query_that_gives_something_else_fails_for_good() -> None:
    with pytest.raises(PermanentRunnerError, match="wanted: expected DATE, found x"):
        conformer(given(pa.string()), declared("DATE"))


@pytest.mark.parametrize("text", ["INT64", "DECIMAL(38,38)", "LIST(MAP(STRING, STRUCT(a INT8, b LIST(DATE))))"])
def test_a_type_is_written_as_it_was_read(text: str) -> None:
    assert str(parse(text)) == text
    assert str(parse(text.lower().replace(", ", " ,  "))).upper() == text.upper()


@pytest.mark.parametrize(
    "text",
    ["", "INTEGER", "DECIMAL", "DECIMAL(39,0)", "DECIMAL(5,6)", "LIST", "LIST()", "MAP(STRING)", "STRUCT()",
     "STRUCT(a INT8, A INT8)", "INT64)", "INT64 INT64", "LIST(" * 30 + "INT8" + ")" * 30, "INT8; DROP"],
)  # fmt: skip
def test_what_is_no_type_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(BadType):
        parse(text)


def test_a_date_is_a_date() -> None:
    assert pa.array([date(1, 1, 1)], arrow_of(parse("DATE"))).to_pylist() == [date(1, 1, 1)]
