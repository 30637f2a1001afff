"""What each Trino type becomes, what is refused with which sentence, and the casts that are put around a query."""

from typing import Any

import pyarrow as pa
import pytest

from paddock.engines.engine import QueryRefused
from paddock.engines.trino.casting import ordered
from paddock.engines.trino.lexing import one_query
from paddock.engines.trino.signature import parse, spelled
from paddock.engines.trino.types import TYPES, TrinoColumn, arrow_type, awkward, check, column_of, wrap
from tests.trino.pages import BIGINT, VARBINARY, VARCHAR, Json, columns, signature

ZONED = signature("timestamp with time zone", 3)
PLACE = signature("row", ("city", VARCHAR), (None, BIGINT))

SPELLED: list[tuple[Json, str, pa.DataType]] = [
    (signature("decimal", 4, 2), "decimal(4,2)", pa.decimal128(4, 2)),
    (VARCHAR, "varchar", pa.string()),
    (signature("varchar", 7), "varchar(7)", pa.string()),
    (signature("time", 3), "time(3)", pa.time32("ms")),
    (signature("time", 4), "time(4)", pa.time64("us")),
    (signature("time", 9), "time(9)", pa.time64("ns")),
    (signature("timestamp"), "timestamp", pa.timestamp("us")),
    (signature("timestamp", 6), "timestamp(6)", pa.timestamp("us")),
    (signature("timestamp", 7), "timestamp(7)", pa.timestamp("ns")),
    (ZONED, "timestamp(3) with time zone", pa.timestamp("us", "UTC")),
    (signature("timestamp with time zone", 9), "timestamp(9) with time zone", pa.timestamp("ns", "UTC")),
    (signature("interval year to month"), "interval year to month", pa.int32()),
    (signature("array", signature("array", BIGINT)), "array(array(bigint))", pa.list_(pa.list_(pa.int64()))),
    (signature("map", BIGINT, VARCHAR), "map(bigint, varchar)", pa.map_(pa.int64(), pa.string())),
    (PLACE, 'row("city" varchar, bigint)', pa.struct([("city", pa.string()), ("field1", pa.int64())])),
    (
        signature("map", VARBINARY, BIGINT),
        "map(varbinary, bigint)",
        pa.list_(pa.struct([("key", pa.binary()), ("value", pa.int64())])),
    ),
    (signature("qdigest", BIGINT), "qdigest(bigint)", pa.binary()),
]


@pytest.mark.parametrize(("type_", "text", "arrow"), SPELLED, ids=[text for _, text, _ in SPELLED])
def test_a_type_is_read_from_its_signature(type_: Json, text: str, arrow: pa.DataType) -> None:
    column = column_of({"name": "a", "type": "whatever people read", "typeSignature": type_})
    assert (column.name, column.native, column.type) == ("a", text, arrow)


def test_the_words_for_arguments_do_not_matter() -> None:
    older = {
        "rawType": "row",
        "arguments": [
            {"kind": "NAMED_TYPE_SIGNATURE", "value": {"fieldName": {"name": "a"}, "typeSignature": "bigint"}},
            {
                "kind": "TYPE_SIGNATURE",
                "value": {"typeSignature": {"rawType": "decimal", "arguments": [{"value": 3}, {"value": 1}]}},
            },
        ],
    }
    assert spelled(parse(older)) == 'row("a" bigint, decimal(3,1))'


@pytest.mark.parametrize("known", TYPES, ids=lambda known: known.raw)
def test_every_line_of_the_table_says_what_its_example_becomes(known: Any) -> None:
    assert known.example.raw == known.raw
    assert arrow_type(known.example) is not None
    check([TrinoColumn("a", arrow_type(known.example), spelled(known.example), known.example)])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "a", "a"], ["a", "a_1", "a_2"]),
        (["a", "a", "a_1"], ["a", "a_2", "a_1"]),
        ([None, None, "field0"], ["field0", "field1", "field0_1"]),
        (["A", "a"], ["A", "a"]),
    ],
)
def test_fields_of_a_row_get_names_that_differ(names: list[str | None], expected: list[str]) -> None:
    [column] = columns(signature("row", *((name, BIGINT) for name in names)))
    assert [field.name for field in column.type] == expected


@pytest.mark.parametrize(
    ("type_", "cast"),
    [
        (signature("timestamp", 12), 'CAST("b" AS timestamp(9))'),
        (signature("time", 10), 'CAST("b" AS time(9))'),
        (signature("timestamp with time zone", 10), 'CAST("b" AS timestamp(9) with time zone)'),
        (
            signature("array", signature("row", ("x", signature("timestamp", 10)), (None, BIGINT))),
            'CAST("b" AS array(row("x" timestamp(9), bigint)))',
        ),
    ],
)
def test_more_digits_than_a_file_can_hold_are_refused_with_the_cast(type_: Json, cast: str) -> None:
    with pytest.raises(QueryRefused) as problem:
        check(columns(BIGINT, type_))
    assert problem.value.code == "type_refused"
    assert "Column 'b' is " in problem.value.message
    assert cast in str(problem.value.hint)


@pytest.mark.parametrize("type_", [signature("BingTile"), signature("array", signature("Color"))])
def test_a_type_nobody_told_us_of_is_refused(type_: Json) -> None:
    [column] = columns(type_)
    with pytest.raises(QueryRefused, match="does not know the type"):
        check([column])


def test_a_query_that_needs_no_cast_is_left_alone() -> None:
    plain = columns(
        BIGINT, VARCHAR, signature("map", BIGINT, signature("array", VARCHAR)), signature("time with time zone", 3)
    )
    assert wrap("SELECT 1 ORDER BY 1", plain) is None
    assert all(awkward(column) is None for column in plain)


def test_columns_are_cast_where_they_stand() -> None:
    first, second = columns(ZONED, BIGINT)
    twin = TrinoColumn('odd "name', second.type, second.native, second.signature)
    assert wrap("SELECT x -- note", [first, twin, twin]) == (
        """SELECT (c0 AT TIME ZONE 'UTC') AS "a", c1 AS "odd ""name", c2 AS "odd ""name" """
        "FROM (\nSELECT x -- note\n) AS q (c0, c1, c2)"
    )


def test_an_ordered_query_is_refused_with_the_cast_to_write() -> None:
    with pytest.raises(QueryRefused) as problem:
        wrap("SELECT a, b FROM t ORDER BY a", columns(BIGINT, ZONED))
    assert problem.value.code == "cast_needed"
    assert "'b' (timestamp(3) with time zone)" in problem.value.message
    assert """CAST(("b" AT TIME ZONE 'UTC') AS timestamp(3)) AS "b\"""" in str(problem.value.hint)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1 ORDER BY 1", True),
        ("select 1 order\n  by 1 limit 3", True),
        ("SELECT 1 ORDER /* why */ BY -- not\n 1", True),
        ("WITH a AS (SELECT 1) SELECT * FROM a ORDER BY 1", True),
        ("SELECT ')' ORDER BY 1", True),
        ("SELECT 1", False),
        ("SELECT 'ORDER BY'", False),
        ("SELECT 'it''s ORDER BY'", False),
        ('SELECT 1 AS "ORDER BY"', False),
        ("SELECT 1 -- ORDER BY 1", False),
        ("SELECT 1 /* ORDER BY 1 */", False),
        ("SELECT row_number() OVER (ORDER BY a) FROM t", False),
        ("SELECT * FROM (SELECT a FROM t ORDER BY a) x", False),
        ("SELECT array_agg(a ORDER BY b) FROM t", False),
        ("(SELECT at, a FROM t ORDER BY a)", True),
        ("-- mine\n( (SELECT ')' FROM t ORDER BY 1) ) /* ( */;", True),
        ("(SELECT a FROM t) ORDER BY a", True),
        ("(SELECT a FROM t ORDER BY a LIMIT 1) UNION (SELECT 2)", False),
        ("((SELECT a FROM t ORDER BY a LIMIT 1) UNION (SELECT 2))", False),
        ("SELECT reorder by_me FROM t", False),
    ],
)
def test_the_order_of_a_whole_query_is_seen(sql: str, expected: bool) -> None:
    assert ordered(one_query(sql)) is expected
