"""Each type's values as Trino writes them, by both decoders; and pages that no server sends."""

from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pytest

from paddock.engines.trino.decoding import BadPage, decoder_for, decompress, split_page
from paddock.engines.trino.decoding.by_csv import ByCsv, is_flat
from paddock.engines.trino.decoding.by_objects import ByObjects
from paddock.engines.trino.types import TrinoColumn
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from tests.trino.pages import BIGINT, BOOLEAN, DOUBLE, VARBINARY, VARCHAR, Json, columns, down, signature, written

TEXTS = [
    "",
    "null",
    None,
    "NULL",
    '"',
    "\\",
    '\\"',
    "],[",
    "[[",
    "]]",
    "null]",
    "a]",
    ",",
    "\n",
    "\r\n",
    "\t",
    "\b\f",
    "\x00",
    "\x1f\x7f",
    "\u2028\u2029\ufeff",
    "😀",
    "é",
    "\U0010ffff",
    " padded ",
    "/",
    "\\u0041",
    "\\n",
    "[\n]\t",
]
INT64 = [2**63 - 1, -(2**63), 0, None, 2**53 + 1]
INFINITE = ["NaN", "Infinity", "-Infinity", -0.0, 1e10, 5e-324, 1.7976931348623157e308, None, 0.1]

# Type, values on the wire, the same values as integers or texts of Arrow's own.
Case = tuple[Json, list[Any], pa.DataType, list[Any]]
FLAT: dict[str, Case] = {
    "boolean": (BOOLEAN, [True, False, None], pa.bool_(), [True, False, None]),
    "tinyint": (signature("tinyint"), [127, -128, None], pa.int8(), [127, -128, None]),
    "smallint": (signature("smallint"), [32767, -32768], pa.int16(), [32767, -32768]),
    "integer": (signature("integer"), [2147483647, -2147483648], pa.int32(), [2147483647, -2147483648]),
    "bigint": (BIGINT, INT64, pa.int64(), INT64),
    "double": (
        DOUBLE,
        INFINITE,
        pa.string(),
        ["nan", "inf", "-inf", "-0", "1e+10", "5e-324", "1.7976931348623157e+308", None, "0.1"],
    ),
    "real": (
        signature("real"),
        ["NaN", "Infinity", "-Infinity", -0.0, 0.1, 1.4e-45, 3.4028235e38, None, 16777216.0],
        pa.string(),
        ["nan", "inf", "-inf", "-0", "0.1", "1e-45", "3.4028235e+38", None, "16777216"],
    ),
    "decimal": (
        signature("decimal", 38, 2),
        ["0.00", "-0.01", "123456789012345678901234567890123456.78", None],
        pa.string(),
        ["0.00", "-0.01", "123456789012345678901234567890123456.78", None],
    ),
    "whole decimal": (
        signature("decimal", 18, 0),
        ["999999999999999999", "-1"],
        pa.string(),
        ["999999999999999999", "-1"],
    ),
    "number": (signature("number"), ["1E+500", "0.1", None], pa.string(), ["1E+500", "0.1", None]),
    "varchar": (VARCHAR, TEXTS, pa.string(), TEXTS),
    "char": (signature("char", 4), ["ab  ", "    ", None], pa.string(), ["ab  ", "    ", None]),
    "varbinary": (VARBINARY, ["", "AP8=", "////", None], pa.binary(), [b"", b"\x00\xff", b"\xff\xff\xff", None]),
    "qdigest": (signature("qdigest", BIGINT), ["AAE="], pa.binary(), [b"\x00\x01"]),
    "json": (signature("json"), ['{"a":[1,"],["]}', "null", None], pa.string(), ['{"a":[1,"],["]}', "null", None]),
    "date": (signature("date"), ["1970-01-01", "2024-02-29", None], pa.int32(), [0, 19782, None]),
    "date far off": (
        signature("date"),
        ["0000-01-01", "-0001-12-31", "+10000-01-01", "-5877641-06-23", "+5881580-07-11", None],
        pa.int32(),
        [-719528, -719529, 2932897, -(2**31), 2**31 - 1, None],
    ),
    "time(0)": (signature("time", 0), ["23:59:59", None], pa.int32(), [86399000, None]),
    "time(3)": (signature("time", 3), ["00:00:00.001", "23:59:59.999"], pa.int32(), [1, 86399999]),
    "time(6)": (signature("time", 6), ["00:00:00.000001", None], pa.int64(), [1, None]),
    "time(9)": (signature("time", 9), ["23:59:59.999999999"], pa.int64(), [86399999999999]),
    "time with time zone": (
        signature("time with time zone", 3),
        ["01:02:03.456+05:30", None],
        pa.string(),
        ["01:02:03.456+05:30", None],
    ),
    "timestamp": (signature("timestamp"), ["1970-01-01 00:00:00.001"], pa.int64(), [1000]),
    "timestamp(0)": (signature("timestamp", 0), ["1970-01-01 00:00:01", None], pa.int64(), [1000000, None]),
    "timestamp(6)": (
        signature("timestamp", 6),
        ["1970-01-01 00:00:00.000001", "1969-12-31 23:59:59.999999"],
        pa.int64(),
        [1, -1],
    ),
    "timestamp(6) far off": (
        signature("timestamp", 6),
        ["-0001-12-31 00:00:00.000000", "+10000-01-01 00:00:00.000001", "0000-01-01 00:00:00.000000", None],
        pa.int64(),
        [-719529 * 86400 * 10**6, 2932897 * 86400 * 10**6 + 1, -719528 * 86400 * 10**6, None],
    ),
    "timestamp(9)": (
        signature("timestamp", 9),
        ["2262-04-11 23:47:16.854775807", "1677-09-21 00:12:43.145224192", None],
        pa.int64(),
        [2**63 - 1, -(2**63), None],
    ),
    "timestamp with time zone": (
        signature("timestamp with time zone", 3),
        ["1970-01-01 00:00:00.001 UTC", "+10000-01-01 00:00:00.000 UTC", None],
        pa.int64(),
        [1000, 2932897 * 86400 * 10**6, None],
    ),
    "interval year to month": (
        signature("interval year to month"),
        ["1-2", "-0-1", "0-0", None],
        pa.int32(),
        [14, -1, 0, None],
    ),
    "interval day to second": (
        signature("interval day to second"),
        ["1 02:03:04.005", "-0 00:00:00.001", None, "106751991167 07:12:55.807"],
        pa.int64(),
        [93784005, -1, None, 2**63 - 1],
    ),
    "uuid": (
        signature("uuid"),
        ["12151fd2-7586-11e9-8f9e-2a86e4085a59", None, "ffffffff-ffff-ffff-ffff-ffffffffffff"],
        pa.binary(16),
        [bytes.fromhex("12151fd2758611e98f9e2a86e4085a59"), None, b"\xff" * 16],
    ),
    "ipaddress": (
        signature("ipaddress"),
        ["2001:db8::1", "10.0.0.1", None],
        pa.string(),
        ["2001:db8::1", "10.0.0.1", None],
    ),
    "unknown": (signature("unknown"), [None, None], pa.string(), [None, None]),
}
NESTED: dict[str, Case] = {
    "array": (
        signature("array", VARCHAR),
        [["a", None], [], None, ['],["']],
        pa.list_(pa.string()),
        [["a", None], [], None, ['],["']],
    ),
    "array of arrays": (
        signature("array", signature("array", signature("decimal", 3, 1))),
        [[["1.5"], None, []], None],
        pa.list_(pa.list_(pa.string())),
        [[["1.5"], None, []], None],
    ),
    "map": (
        signature("map", VARCHAR, BIGINT),
        [{"a": 1, "": None}, {}, None],
        pa.map_(pa.string(), pa.int64()),
        [[("a", 1), ("", None)], [], None],
    ),
    "map by number": (
        signature("map", BIGINT, VARCHAR),
        [{"-1": "x"}],
        pa.map_(pa.int64(), pa.string()),
        [[(-1, "x")]],
    ),
    "map by boolean": (
        signature("map", BOOLEAN, BOOLEAN),
        [{"true": False, "false": None}],
        pa.map_(pa.bool_(), pa.bool_()),
        [[(True, False), (False, None)]],
    ),
    "map by double": (
        signature("map", DOUBLE, BIGINT),
        [{"-Infinity": 1, "1.0E10": 2}],
        pa.map_(pa.float64(), pa.int64()),
        [[(float("-inf"), 1), (1e10, 2)]],
    ),
    "map by date": (
        signature("map", signature("date"), BIGINT),
        [{"1970-01-02": 1}],
        pa.map_(pa.int32(), pa.int64()),
        [[(1, 1)]],
    ),
    "row": (
        signature("row", ("a", BIGINT), (None, VARCHAR), ("a", DOUBLE)),
        [[1, "x", "NaN"], None, [None, None, None]],
        pa.struct([("a", pa.int64()), ("field1", pa.string()), ("a_1", pa.string())]),
        [{"a": 1, "field1": "x", "a_1": "nan"}, None, {"a": None, "field1": None, "a_1": None}],
    ),
    "rows in arrays in maps": (
        signature(
            "map", VARCHAR, signature("array", signature("row", ("at", signature("timestamp", 3)), ("b", VARBINARY)))
        ),
        [{"k": [["1970-01-01 00:00:00.001", "AA=="], None]}, {"l": None}, None],
        pa.map_(pa.string(), pa.list_(pa.struct([("at", pa.int64()), ("b", pa.binary())]))),
        [[("k", [{"at": 1000, "b": b"\x00"}, None])], [("l", None)], None],
    ),
    "array of uuids": (
        signature("array", signature("uuid")),
        [["12151fd2-7586-11e9-8f9e-2a86e4085a59", None], None],
        pa.list_(pa.binary(16)),
        [[bytes.fromhex("12151fd2758611e98f9e2a86e4085a59"), None], None],
    ),
}


def plainly(array: pa.Array, type_: pa.DataType) -> list[Any]:
    """Values that compare: times as their numbers, NaN as its text."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if type_.id in (pa.int32().id, pa.int64().id) and array.type != type_ and not pa.types.is_integer(array.type):
        array = array.view(type_)
    elif pa.types.is_list(type_):
        return [None if not item.is_valid else plainly(item.values, type_.value_type) for item in array]
    elif pa.types.is_map(type_):
        return [None if not item.is_valid else _pairs(item.values, type_) for item in array]
    elif pa.types.is_struct(type_):
        fields = [plainly(array.field(place), type_.field(place).type) for place in range(type_.num_fields)]
        names = [field.name for field in array.type]
        rows = [dict(zip(names, values, strict=True)) for values in zip(*fields, strict=True)]
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    elif pa.types.is_string(type_):
        array = array.cast(pa.string())
    values: list[Any] = array.to_pylist()
    return values


def _pairs(entries: pa.Array, type_: pa.DataType) -> list[tuple[Any, Any]]:
    keys = plainly(entries.field(0), type_.key_type)
    return list(zip(keys, plainly(entries.field(1), type_.item_type), strict=True))


@pytest.mark.parametrize("case", [*FLAT.values(), *NESTED.values()], ids=[*FLAT, *NESTED])
def test_every_value_of_every_type_is_kept(case: Case) -> None:
    type_, values, plain, expected = case
    batch = ByObjects(columns(type_)).decode(down(values))
    batch.validate(full=True)
    assert plainly(batch.column(0), plain) == expected


@pytest.mark.parametrize("case", FLAT.values(), ids=FLAT.keys())
@pytest.mark.parametrize("place", ["alone", "first", "last"])
def test_both_decoders_agree_wherever_the_column_stands(case: Case, place: str) -> None:
    type_, values, plain, expected = case
    beside = [f"text {number}" for number in range(len(values))]
    types, rows = {
        "alone": ([type_], [[value] for value in values]),
        "first": ([type_, VARCHAR], [list(row) for row in zip(values, beside, strict=True)]),
        "last": ([VARCHAR, type_], [list(row) for row in zip(beside, values, strict=True)]),
    }[place]
    shaped = columns(*types)

    by_csv = decoder_for(shaped).decode(written(rows))

    by_csv.validate(full=True)
    assert plainly(by_csv.column(-1 if place == "last" else 0), plain) == expected
    assert same(by_csv, ByObjects(shaped).decode(written(rows)))


@pytest.mark.parametrize("name", FLAT)
def test_the_quick_way_is_taken(name: str) -> None:
    type_, values, plain, expected = FLAT[name]
    batch = ByCsv(columns(type_, BIGINT)).quickly(written([value, 1] for value in values))
    assert plainly(batch.column(0), plain) == expected


def same(one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    """To the bit: NaN equals NaN and -0.0 is not 0.0."""
    if one.schema != other.schema:
        return False
    return all(_bits(a).equals(_bits(b)) for a, b in zip(one.columns, other.columns, strict=True))


def _bits(array: pa.Array) -> pa.Array:
    whole = pa.concat_arrays([array])
    if pa.types.is_floating(whole.type):
        # Which NaN is nobody's business.
        numbers = whole.cast(pa.string())
        return numbers
    return whole


def test_a_real_is_rounded_once() -> None:
    """The double nearest to this text lies in the middle of two floats, the text itself does not."""
    text = b"7.038531E-26"
    once = pa.array([text.decode()]).cast(pa.float32())
    assert not once.equals(pa.array([float(text)], pa.float64()).cast(pa.float32())), "the case shows nothing"
    shaped = columns(signature("real"))
    assert ByCsv(shaped).quickly(b"[[" + text + b"]]").column(0).equals(once)
    assert ByObjects(shaped).decode(b"[[" + text + b"]]").column(0).equals(once)


def test_columns_may_share_a_name() -> None:
    shaped = columns(BIGINT, VARCHAR)
    twins = [TrinoColumn("a", column.type, column.native, column.signature) for column in shaped]
    batch = decoder_for(twins).decode(b'[[1,"x"]]')
    assert (batch.schema.names, batch.column(1).to_pylist()) == (["a", "a"], ["x"])


@pytest.mark.parametrize("types", [[BIGINT, VARCHAR], [signature("array", BIGINT)]])
def test_no_rows_are_a_typed_batch_of_none(types: list[Json]) -> None:
    batch = decoder_for(columns(*types)).decode(b"[]")
    assert batch.num_rows == 0
    assert batch.schema.types == [column.type for column in columns(*types)]


def test_escapes_that_trino_does_not_need_are_understood() -> None:
    page = rb'[["\ud83d\ude00\u0041\u00e9\/\u005b\u005d\u0022\u005c\u000a\u0009\u000d\u0000\u001F","x"]]'
    shaped = columns(VARCHAR, VARCHAR)
    expected = '😀Aé/[]"\\\n\t\r\x00\x1f'
    assert decoder_for(shaped).decode(page).column(0).to_pylist() == [expected]
    assert ByObjects(shaped).decode(page).column(0).to_pylist() == [expected]


@pytest.mark.parametrize("page", [b'[ [1, "a"],\n [2, "b"] ]', b'[[1, "a"],[2, "b"]]', b'[[1,"a" ],[2,"b" ]]'])
def test_spaces_are_json_too(page: bytes) -> None:
    batch = decoder_for(columns(BIGINT, VARCHAR)).decode(page)
    assert batch.to_pydict() == {"a": [1, 2], "b": ["a", "b"]}


def test_a_time_that_nanoseconds_cannot_say_names_its_column_and_the_cast() -> None:
    shaped = columns(BIGINT, signature("timestamp", 9))
    for text in ("2262-04-11 23:47:16.854775808", "1677-09-21 00:12:43.145224191", "+10000-01-01 00:00:00.000000000"):
        with pytest.raises(PermanentRunnerError) as problem:
            decoder_for(shaped).decode(written([[1, text]]))
        assert problem.value.code == "value_out_of_range"
        assert "'b' (timestamp(9))" in problem.value.message
        assert 'CAST("b" AS timestamp(6))' in str(problem.value.hint)


def test_the_wall_clock_of_a_zone_is_refused() -> None:
    with pytest.raises(PermanentRunnerError) as problem:
        decoder_for(columns(signature("timestamp with time zone", 3))).decode(
            down(["2024-10-27 02:30:00.000 UTC", "2024-10-27 02:30:00.000 Europe/Berlin"])
        )
    assert problem.value.code == "cast_needed"
    assert "AT TIME ZONE 'UTC'" in str(problem.value.hint)


def test_a_map_by_rows_must_have_been_cast() -> None:
    with pytest.raises(PermanentRunnerError) as problem:
        decoder_for(columns(signature("map", signature("row", ("a", BIGINT)), BIGINT)))
    assert problem.value.code == "cast_needed"
    assert "map_entries" in str(problem.value.hint)


WRONG: dict[str, tuple[list[Json], bytes]] = {
    "nothing": ([BIGINT], b""),
    "not JSON": ([BIGINT], b"<html>"),
    "no list": ([BIGINT], b'{"a":1}'),
    "rows that are none": ([BIGINT], b"[1,2]"),
    "cut in a row": ([BIGINT, VARCHAR], b'[[1,"a"],[2,"b'),
    "cut between rows": ([BIGINT, VARCHAR], b'[[1,"a"],'),
    "cut behind brackets in a text": ([VARCHAR], b'[["a"],["b]]'),
    "cut in an escape": ([VARCHAR], b'[["a\\'),
    "a column too few": ([BIGINT, VARCHAR], b'[[1,"a"],[2]]'),
    "a column too many": ([BIGINT, VARCHAR], b'[[1,"a"],[2,"b",3]]'),
    "one column less in all rows": ([BIGINT, VARCHAR], b"[[1],[2]]"),
    "one column more in all rows": ([BIGINT], b"[[1,2],[3,4]]"),
    "an empty row": ([BIGINT], b"[[1],[]]"),
    "an empty row of a text": ([VARCHAR], b'[["a"],[]]'),
    "only an empty row": ([VARCHAR], b"[[]]"),
    "a comma too many": ([BIGINT, VARCHAR], b'[[1,,"a"]]'),
    "an empty value": ([BIGINT, VARCHAR, BIGINT], b"[[1,,2]]"),
    "a text as number": ([BIGINT, VARCHAR], b'[["1","a"]]'),
    "a number as text": ([BIGINT, VARCHAR], b"[[1,2]]"),
    "a text without quotes": ([BIGINT, VARCHAR], b"[[1,abc]]"),
    "a fraction as integer": ([BIGINT], b"[[1.5]]"),
    "a whole fraction as integer": ([BIGINT], b"[[1.0]]"),
    "an integer too large": ([signature("tinyint")], b"[[128]]"),
    "a bigint too large": ([BIGINT], b"[[9223372036854775808]]"),
    "true as integer": ([BIGINT], b"[[true]]"),
    "1 as boolean": ([BOOLEAN], b"[[1]]"),
    "a quoted boolean": ([BOOLEAN], b'[["true"]]'),
    "true as double": ([DOUBLE], b"[[true]]"),
    "a quoted double": ([DOUBLE], b'[["1.5"]]'),
    "a bare NaN": ([DOUBLE], b"[[NaN]]"),
    "a double too large": ([DOUBLE], b"[[1e999]]"),
    "a decimal with digits too many": ([signature("decimal", 4, 2)], b'[["100.00"]]'),
    "a decimal with another scale": ([signature("decimal", 10, 2)], b'[["1.005"]]'),
    "a bare decimal": ([signature("decimal", 4, 2)], b"[[1.00]]"),
    "no such day": ([signature("date")], b'[["2023-02-29"]]'),
    "no such day far off": ([signature("date")], b'[["+12023-02-29"]]'),
    "no such hour": ([signature("timestamp", 3)], b'[["2023-02-28 24:00:00.000"]]'),
    "no such second far off": ([signature("timestamp", 3)], b'[["-0001-02-28 23:00:60.000"]]'),
    "a time of nothing": ([signature("time", 3)], b'[[""]]'),
    "no base64": ([VARBINARY], b'[["A"]]'),
    "no base64 at all": ([VARBINARY], b'[["*"]]'),
    "no uuid": ([signature("uuid")], b'[["12151fd2-7586-11e9-8f9e-2a86e4085a5"]]'),
    "a uuid of other letters": ([signature("uuid")], b'[["z2151fd2-7586-11e9-8f9e-2a86e4085a59"]]'),
    "a uuid of too few digits": ([signature("uuid")], b'[["------------------------------------"]]'),
    "no interval": ([signature("interval day to second")], b'[["1"]]'),
    "a raw newline in a text": ([VARCHAR], b'[["a\nb"]]'),
    "a raw tab in a text": ([VARCHAR], b'[["a\tb"]]'),
    "a raw zero in a text": ([VARCHAR], b'[["a\x00b"]]'),
    "half a character": ([VARCHAR], b'[["\xc3"]]'),
    "a sentinel": ([VARCHAR], b'[["\xff"]]'),
    "half a pair": ([VARCHAR], b'[["\\ud83d"]]'),
    "an unknown escape": ([VARCHAR], b'[["\\x41"]]'),
    "an escape of no digits": ([VARCHAR], b'[["\\u+123"]]'),
    "something behind a row": ([BIGINT, VARCHAR], b'[[1,"a"]x,[2,"b"]]'),
    "something before a row": ([BIGINT, VARCHAR], b'[[1,"a"],x[2,"b"]]'),
    "something behind the page": ([BIGINT], b"[[1]]]]"),
    "nested too deep": ([BIGINT], b"[[[1]]]"),
    "a text as array": ([signature("array", VARCHAR)], b'[["abc"]]'),
    "an array as map": ([signature("map", VARCHAR, BIGINT)], b"[[[1]]]"),
    "a row too short": ([signature("row", ("a", BIGINT), ("b", BIGINT))], b"[[[1]]]"),
    "a text as row": ([signature("row", ("a", VARCHAR), ("b", VARCHAR))], b'[["ab"]]'),
    "a key of another type": ([signature("map", BIGINT, BIGINT)], b'[[{"x":1}]]'),
    "a value of another type deep down": ([signature("array", signature("array", BIGINT))], b'[[[["x"]]]]'),
}


@pytest.mark.parametrize(("types", "page"), WRONG.values(), ids=WRONG.keys())
def test_a_damaged_page_is_an_error_and_never_rows(types: list[Json], page: bytes) -> None:
    shaped = columns(*types)
    for decoder in (decoder_for(shaped), ByObjects(shaped)):
        with pytest.raises(BadPage) as problem:
            decoder.decode(page)
        assert isinstance(problem.value, TransientResourceError)
        assert problem.value.code == "bad_page"
        assert problem.value.hint


def test_a_damaged_value_is_not_told() -> None:
    """It is the owner's data, and messages are read by others."""
    with pytest.raises(BadPage) as problem:
        decoder_for(columns(BIGINT)).decode(b'[["secret"]]')
    assert "secret" not in str(problem.value)
    assert "'a'" in str(problem.value)
    assert problem.value.__cause__ is None


def test_a_page_cut_anywhere_is_an_error() -> None:
    flat = columns(BIGINT, VARCHAR, signature("date"))
    page = written([[1, 'x"],["', "2024-01-01"], [None, "]]", None], [-5, "\\", "2024-01-02"]])
    for length in range(len(page)):
        with pytest.raises(BadPage):
            decoder_for(flat).decode(page[:length])


def test_flat_pages_are_read_as_csv_and_nested_ones_by_objects() -> None:
    assert is_flat(columns(BIGINT, VARCHAR))
    assert isinstance(decoder_for(columns(BIGINT)), ByCsv)
    assert isinstance(decoder_for(columns(BIGINT, signature("array", BIGINT))), ByObjects)


def test_another_encoding_is_refused() -> None:
    assert decoder_for(columns(BIGINT), "json+lz4").decode(b"[[1]]").num_rows == 1
    with pytest.raises(BadPage, match="arrow"):
        decoder_for(columns(BIGINT), "arrow+zstd")


ENVELOPE = {"id": "20240101_1", "nextUri": "http://trino/v1/statement/executing/1", "columns": [{"name": "data"}]}


def enveloped(data: Any, *, after: Json | None = None) -> bytes:
    middle = {} if data is ... else {"data": data}
    return orjson.dumps(ENVELOPE | middle | (after or {"stats": {"state": "RUNNING"}, "warnings": []}))


HOSTILE: list[Any] = [
    [[1, "a"]],
    [],
    [['"data":[', '],"stats":{"state":"FINISHED"}']],
    [[{"data": [1, 2], "stats": {}}]],
    [[{"a": [1], "stats": {"b": [2]}}]],
    [["\\", '\\"data\\":[']],
]


@pytest.mark.parametrize("data", HOSTILE)
@pytest.mark.parametrize(
    "write", [lambda body: body, lambda body: orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2)]
)
def test_the_rows_are_cut_out_of_their_envelope(data: Any, write: Callable[[bytes], bytes]) -> None:
    envelope, rows = split_page(write(enveloped(data)))
    assert rows is not None
    assert orjson.loads(rows) == data
    assert envelope["id"] == ENVELOPE["id"]
    assert envelope["stats"] == {"state": "RUNNING"}
    assert envelope["data"] is None


def test_the_rows_are_found_wherever_they_stand() -> None:
    body = orjson.dumps({"stats": {"a": [1], "stats": {"data": [7]}}, "id": "x", "data": [[1]], "error": {"data": [8]}})
    envelope, rows = split_page(body)
    assert rows == b"[[1]]"
    assert envelope["error"] == {"data": [8]}


def test_a_page_without_rows_has_none() -> None:
    for data in (..., None):
        envelope, rows = split_page(enveloped(data))
        assert rows is None
        assert envelope["id"] == ENVELOPE["id"]


def test_spooled_segments_stay_in_the_envelope() -> None:
    spooled = {"encoding": "json+zstd", "segments": [{"type": "inline", "data": "W10=", "metadata": {"rowsCount": 0}}]}
    envelope, rows = split_page(enveloped(spooled))
    assert (envelope["data"], rows) == (spooled, None)


def test_an_envelope_cut_anywhere_is_an_error_or_fails_when_its_rows_are_read() -> None:
    body = enveloped([[1, "a"], [2, '"data":[']])
    for length in range(len(body)):
        with pytest.raises(BadPage):
            split_page(body[:length])


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"<html></html>"])
def test_what_is_no_envelope_is_an_error(body: bytes) -> None:
    with pytest.raises(BadPage):
        split_page(body)


TEXT = written([[number, f"row {number}"] for number in range(1000)])
PACKED = {
    "json+zstd": pa.Codec("zstd").compress(TEXT, asbytes=True),
    "json+lz4": pa.Codec("lz4_raw").compress(TEXT, asbytes=True),
}


@pytest.mark.parametrize("encoding", PACKED)
def test_segments_are_decompressed(encoding: str) -> None:
    assert decompress(encoding, PACKED[encoding], len(TEXT)) == TEXT


@pytest.mark.parametrize("encoding", ["json", *PACKED])
def test_small_segments_are_plain(encoding: str) -> None:
    assert decompress(encoding, b"[[1]]", None) == b"[[1]]"


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("size", [len(TEXT) - 1, len(TEXT) + 1, 0, -1, 1 << 40])
def test_a_segment_of_another_size_than_it_says_is_an_error(encoding: str, size: int) -> None:
    with pytest.raises(BadPage):
        ByObjects(columns(BIGINT, VARCHAR)).decode(decompress(encoding, PACKED[encoding], size))


@pytest.mark.parametrize("encoding", PACKED)
def test_a_damaged_segment_is_an_error(encoding: str) -> None:
    packed = PACKED[encoding]
    for damaged in (packed[: len(packed) // 2], b"", b"\x00" * 50):
        with pytest.raises(BadPage):
            decompress(encoding, damaged, len(TEXT))
    with pytest.raises(BadPage):
        decompress("json+gzip", packed, len(TEXT))
