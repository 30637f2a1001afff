"""Every type as a real Trino sends it, and the casts that a real Trino must accept."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pyarrow as pa
import pytest

from paddock.engines.trino.decoding import decoder_for, split_page
from paddock.engines.trino.types import TYPES, TrinoColumn, column_of, wrap
from tests.trino.server import TrinoServer
from tests.trino.test_decoding import plainly

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HEADERS = {"X-Trino-User": "lab", "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"}
UUID = bytes.fromhex("12151fd2758611e98f9e2a86e4085a59")

# By raw type: expressions, the plain Arrow type to look at them by, and what must be there.
SENT: dict[str, list[tuple[str, pa.DataType, Any]]] = {
    "boolean": [("true", pa.bool_(), True)],
    "tinyint": [("tinyint '-128'", pa.int8(), -128)],
    "smallint": [("smallint '32767'", pa.int16(), 32767)],
    "integer": [("-2147483648", pa.int32(), -(2**31))],
    "bigint": [("9223372036854775807", pa.int64(), 2**63 - 1)],
    "real": [
        ("real '1.17549435E-38'", pa.string(), "1.1754944e-38"),
        ("real '-0.0'", pa.string(), "-0"),
        ("CAST(nan() AS real)", pa.string(), "nan"),
        ("CAST(-infinity() AS real)", pa.string(), "-inf"),
    ],
    "double": [
        ("double '1E10'", pa.string(), "1e+10"),
        ("double '-0.0'", pa.string(), "-0"),
        ("nan()", pa.string(), "nan"),
        ("infinity()", pa.string(), "inf"),
        ("double '4.9E-324'", pa.string(), "5e-324"),
    ],
    "decimal": [
        ("decimal '-0.01'", pa.string(), "-0.01"),
        ("decimal '99999999999999999999999999999999999999'", pa.string(), "9" * 38),
    ],
    "varchar": [
        ("U&'],[\"\\005C\\000A\\0000\\001F\\007F\\2028\\+01F600'", pa.string(), '],["\\\n\x00\x1f\x7f\u2028😀'),
        ("'null'", pa.string(), "null"),
        ("''", pa.string(), ""),
    ],
    "char": [("CAST('ab' AS char(4))", pa.string(), "ab  ")],
    "varbinary": [("X'00FF10'", pa.binary(), b"\x00\xff\x10"), ("X''", pa.binary(), b"")],
    "json": [("JSON '{\"a\": [1, null]}'", pa.string(), '{"a":[1,null]}')],
    "date": [
        ("date '2024-02-29'", pa.int32(), 19782),
        ("date '0000-01-01'", pa.int32(), -719528),
        ("date '-0001-12-31'", pa.int32(), -719529),
        ("date '+10000-01-01'", pa.int32(), 2932897),
    ],
    "time": [
        ("time '23:59:59'", pa.int32(), 86399000),
        ("time '23:59:59.999'", pa.int32(), 86399999),
        ("time '00:00:00.000001'", pa.int64(), 1),
        ("time '00:00:00.000000001'", pa.int64(), 1),
    ],
    "time with time zone": [("time '01:02:03.456 +05:30'", pa.string(), "01:02:03.456+05:30")],
    "timestamp": [
        ("timestamp '1970-01-01 00:00:01'", pa.int64(), 10**6),
        ("timestamp '1969-12-31 23:59:59.999999'", pa.int64(), -1),
        ("timestamp '1970-01-01 00:00:00.000000001'", pa.int64(), 1),
        ("timestamp '-0001-12-31 00:00:00.000'", pa.int64(), -719529 * 86400 * 10**6),
        ("timestamp '+10000-01-01 00:00:00.000'", pa.int64(), 2932897 * 86400 * 10**6),
    ],
    "timestamp with time zone": [
        ("timestamp '1970-01-01 01:00:00.001 Europe/Berlin'", pa.int64(), 1000),
        # The hour that comes twice: on the wire both read 02:30 Europe/Berlin.
        ("from_iso8601_timestamp('2024-10-27T00:30:00Z') AT TIME ZONE 'Europe/Berlin'", pa.int64(), 1729989000 * 10**6),
        ("from_iso8601_timestamp('2024-10-27T01:30:00Z') AT TIME ZONE 'Europe/Berlin'", pa.int64(), 1729992600 * 10**6),
        ("timestamp '1970-01-01 00:00:00.000000001 +00:00'", pa.int64(), 1),
    ],
    "interval year to month": [("interval '-1' year + interval '-2' month", pa.int32(), -14)],
    "interval day to second": [("interval '-1' day + interval '-1' second", pa.int64(), -86401000)],
    "uuid": [("uuid '12151fd2-7586-11e9-8f9e-2a86e4085a59'", pa.binary(16), UUID)],
    "ipaddress": [("ipaddress '2001:db8::1'", pa.string(), "2001:db8::1")],
    "array": [
        ("ARRAY[1, null]", pa.list_(pa.int32()), [1, None]),
        ("ARRAY[timestamp '1970-01-01 01:00:00.001 Europe/Berlin', null]", pa.list_(pa.int64()), [1000, None]),
    ],
    "map": [
        ("MAP(ARRAY['a', ''], ARRAY[1, null])", pa.map_(pa.string(), pa.int32()), [("a", 1), ("", None)]),
        ("MAP(ARRAY[double '1E10'], ARRAY[1])", pa.map_(pa.float64(), pa.int32()), [(1e10, 1)]),
        ("MAP(ARRAY[true], ARRAY[1])", pa.map_(pa.bool_(), pa.int32()), [(True, 1)]),
        ("MAP(ARRAY[decimal '1.50'], ARRAY[1])", pa.map_(pa.string(), pa.int32()), [("1.50", 1)]),
        ("MAP(ARRAY[date '-0001-12-31'], ARRAY[1])", pa.map_(pa.int32(), pa.int32()), [(-719529, 1)]),
        ("MAP(ARRAY[timestamp '1970-01-01 00:00:00.001'], ARRAY[1])", pa.map_(pa.int64(), pa.int32()), [(1000, 1)]),
        (
            "MAP(ARRAY[1], ARRAY[timestamp '1970-01-01 01:00:00.001 Europe/Berlin'])",
            pa.map_(pa.int32(), pa.int64()),
            [(1, 1000)],
        ),
        (
            "MAP(ARRAY[X'00FF'], ARRAY['x'])",
            pa.list_(pa.struct([("key", pa.binary()), ("value", pa.string())])),
            [{"key": b"\x00\xff", "value": "x"}],
        ),
        (
            "MAP(ARRAY[ROW(1, timestamp '1970-01-01 01:00:00.001 Europe/Berlin')], ARRAY[ARRAY[2]])",
            pa.list_(
                pa.struct([("key", pa.struct([("a", pa.int32()), ("b", pa.int64())])), ("value", pa.list_(pa.int32()))])
            ),
            [{"key": {"field0": 1, "field1": 1000}, "value": [2]}],
        ),
    ],
    "row": [
        (
            "CAST(ROW(1, 'x', 2) AS row(a bigint, varchar, a bigint))",
            pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.int64())]),
            {"a": 1, "field1": "x", "a_1": 2},
        ),
        ("ROW(1, null)", pa.struct([("a", pa.int32()), ("b", pa.string())]), {"field0": 1, "field1": None}),
        (
            "CAST(ROW(timestamp '1970-01-01 01:00:00.001 Europe/Berlin', 'x') AS row(t timestamp(3) with time zone, varchar))",
            pa.struct([("t", pa.int64()), ("b", pa.string())]),
            {"t": 1000, "field1": "x"},
        ),
    ],
    "Geometry": [("ST_Point(1, 2)", pa.string(), "POINT (1 2)")],
    "SphericalGeography": [("to_spherical_geography(ST_Point(1, 2))", pa.string(), "POINT (1 2)")],
    "unknown": [("NULL", pa.string(), None)],
}
# Bytes that are Trino's own business: that they come at all, and are binary.
DIGESTS = {
    "HyperLogLog": "approx_set(1)",
    "P4HyperLogLog": "CAST(approx_set(1) AS P4HyperLogLog)",
    "SetDigest": "make_set_digest(1)",
    "tdigest": "tdigest_agg(1)",
    "qdigest": "qdigest_agg(1)",
}
# Of later servers.
NOT_YET = {"number", "variant"}


def answers(server: TrinoServer, sql: str) -> Iterator[tuple[dict[str, Any], bytes | None]]:
    with httpx2.Client(headers=HEADERS, timeout=60) as client:
        body = client.post(f"{server.url}/v1/statement", content=sql.encode()).content
        while True:
            envelope, rows = split_page(body)
            assert "error" not in envelope, (sql, envelope["error"]["message"])
            yield envelope, rows
            if "nextUri" not in envelope:
                return
            body = client.get(envelope["nextUri"]).content


def described(server: TrinoServer, sql: str) -> list[TrinoColumn]:
    pages = [envelope for envelope, _ in answers(server, f"SELECT * FROM (\n{sql}\n) LIMIT 0")]
    return [column_of(column) for column in pages[-1]["columns"]]


def exported(server: TrinoServer, sql: str) -> pa.Table:
    expected = described(server, sql)
    batches = []
    for envelope, rows in answers(server, wrap(sql, expected) or sql):
        if rows is not None:
            batches.append(decoder_for([column_of(column) for column in envelope["columns"]]).decode(rows))
    table = pa.Table.from_batches(batches)
    assert table.schema == pa.schema([(column.name, column.type) for column in expected]), "described otherwise"
    return table


def test_every_type_of_the_table_is_tried_here() -> None:
    assert {known.raw for known in TYPES} == {*SENT, *DIGESTS, *NOT_YET}


@pytest.mark.parametrize("raw", SENT)
def test_values_arrive_as_they_are(trino: TrinoServer, raw: str) -> None:
    cases = SENT[raw]
    chosen = ", ".join(expression for expression, _, _ in cases)
    nothing = ", ".join("NULL" for _ in cases)
    table = exported(trino, f"SELECT {chosen} UNION ALL SELECT {nothing}")
    assert table.num_rows == 2
    for column, (expression, plain, expected) in zip(table.columns, cases, strict=True):
        values = plainly(column.combine_chunks(), plain)
        assert None in values
        assert [value for value in values if value is not None] == ([] if expected is None else [expected]), expression


@pytest.mark.parametrize("raw", DIGESTS)
def test_digests_arrive_as_their_bytes(trino: TrinoServer, raw: str) -> None:
    # It has no cast of its own to bytes.
    castable = f"CAST({DIGESTS[raw]} AS HyperLogLog)" if raw == "P4HyperLogLog" else DIGESTS[raw]
    table = exported(trino, f"SELECT {DIGESTS[raw]} AS digest, CAST({castable} AS varbinary) AS bytes")
    [digest], [its_bytes] = table.column(0).to_pylist(), table.column(1).to_pylist()
    assert digest == its_bytes
    assert len(digest) > 0


def test_columns_that_share_a_name_can_be_cast(trino: TrinoServer) -> None:
    table = exported(trino, 'SELECT timestamp \'1970-01-01 01:00:00 +01:00\' AS a, 1 AS a, ROW(1, 2) AS "x""y"')
    assert table.schema.names == ["a", "a", 'x"y']
    assert table.column(0).cast(pa.int64()).to_pylist() == [0]
