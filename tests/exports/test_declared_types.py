"""What a mapping declares against what a query gives: kept exactly, or a mismatch at its column."""

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from paddock.declared_arrow import arrow_of
from paddock.declared_types import BadType, parse
from paddock.engines.children.wire import UUID_MARK
from paddock.engines.engine import Column
from paddock.exports.arrow_types import conformer, declared_name, mismatches, other_names
from paddock.exports.model import DeclaredColumn
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


ID = UUID("0a1b2c3d-4e5f-4071-8293-a4b5c6d7e8f9")
TEXT = pa.field("a", pa.string(), metadata=UUID_MARK)
NESTED = [
    (pa.struct([TEXT]), [{"a": str(ID)}, None, {"a": None}], "STRUCT(a UUID)", [{"a": ID}, None, {"a": None}]),
    (pa.list_(TEXT), [[str(ID), None], None, []], "LIST(UUID)", [[ID, None], None, []]),
    (pa.map_(TEXT.with_nullable(False), TEXT), [[(str(ID), None)], None, []], "MAP(UUID, UUID)",
     [[(ID, None)], None, []]),
    (pa.list_(pa.struct([TEXT])), [[{"a": str(ID)}], None, []], "LIST(STRUCT(a UUID))", [[{"a": ID}], None, []]),
]  # fmt: skip


@pytest.mark.parametrize(("type", "values", "wanted", "expected"), NESTED, ids=[one[2] for one in NESTED])
def test_a_uuid_inside_of_another_type_fits_and_is_one(
    type: pa.DataType, values: list[object], wanted: str, expected: list[object]
) -> None:
    found = given(type)
    batch = pa.record_batch([pa.array([None, *values], type)], ["given"]).slice(1)
    as_uuids = conformer(found, declared(wanted))(batch)
    as_text = wanted.replace("UUID", "STRING")

    assert as_uuids.column(0).to_pylist() == expected
    assert declared_name(found[0]) == wanted
    assert conformer(found, declared(as_text))(batch).column(0).to_pylist() == values
    # What came as uuids becomes text too, as deep as it lies.
    exact = [Column("given", as_uuids.schema.field(0).type, "x")]
    assert conformer(exact, declared(as_text))(as_uuids).column(0).to_pylist() == values


def test_text_inside_of_another_type_is_no_uuid() -> None:
    [wrong] = mismatches(given(pa.struct([("a", pa.string())])), declared("STRUCT(a UUID)"))

    assert "declare it as STRUCT(a STRING)" in wrong.hint


def test_what_only_looks_like_a_uuid_column_names_itself() -> None:
    with pytest.raises(PermanentRunnerError, match="A value of column 'wanted' does not fit"):
        conformer(given(pa.string(), "UUID"), declared("UUID"))(pa.record_batch([pa.array(["no"])], ["given"]))


def test_the_fields_of_a_struct_are_matched_by_their_place() -> None:
    found = pa.struct([("a", pa.int16()), ("b", pa.string())])
    batch = pa.record_batch([pa.array([{"a": 1, "b": "x"}, None], found)], ["given"])

    renamed = conformer(given(found), declared("STRUCT(x INT64, y STRING)"))(batch)
    assert renamed.column(0).to_pylist() == [{"x": 1, "y": "x"}, None]
    assert mismatches(
        given(pa.struct([("a", pa.string()), ("b", pa.string())])), declared("STRUCT(b STRING, a STRING)")
    )


def test_missing_and_extra_columns_are_named() -> None:
    one, two = Column("a", pa.int64(), "bigint"), Column("b", pa.int64(), "bigint")

    [missing] = mismatches([one], [DeclaredColumn(name="a", type="INT64"), DeclaredColumn(name="c", type="DATE")])
    [extra] = mismatches([one, two], [DeclaredColumn(name="a", type="INT64")])

    assert (missing.column, missing.found) == ("c", "nothing")
    assert (extra.column, extra.expected) == ("b", "nothing")


def texts(*names: str) -> list[Column]:
    return [Column(name, pa.string(), "varchar") for name in names]


def wanted(*names: str) -> list[DeclaredColumn]:
    return [DeclaredColumn(name=name, type="STRING") for name in names]


def test_columns_in_each_others_place_are_a_mismatch_at_theirs() -> None:
    found, declared_ = texts("code", "City", "name"), wanted("code", "name", "city")
    wrong = mismatches(found, declared_)

    assert [(one.position, one.expected, one.found) for one in wrong] == [
        (1, "name STRING", "City varchar"),
        (2, "city STRING", "name varchar"),
    ]
    assert other_names(found, declared_) == []
    assert [one.position for one in mismatches(texts("b", "c", "a"), wanted("a", "b", "c"))] == [0, 1, 2]
    with pytest.raises(PermanentRunnerError, match="name: expected name STRING, found City varchar"):
        conformer(found, declared_)


def test_other_names_are_a_warning_that_position_counts() -> None:
    found, declared_ = texts("code", "name", "upper(x)"), wanted("CODE", "city", "name")

    assert mismatches(found, declared_) == []
    assert [(one.position, one.column, one.found) for one in other_names(found, declared_)] == [
        (1, "city", "name"),
        (2, "name", "upper(x)"),
    ]
    assert "position counts" in other_names(found, declared_)[0].message


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
