"""Every type, row-exact: against the driver's own binary decoding where it has a value, else against PostgreSQL's text."""

from typing import Any

import pyarrow as pa
import pytest

from paddock.engines.engine import Query
from paddock.engines.postgres.engine import PostgresEngine
from paddock.engines.postgres.types import BY_NAME, TYPES
from paddock.jobs.errors import PermanentRunnerError
from tests.engines.postgres.reading import read

HOSTILE = [
    "",
    " ",
    "NULL",
    "\\N",
    "\\.",
    '"',
    '""',
    "a,b",
    "a\nb",
    "\n",
    "\r\n",
    "\r",
    "\t",
    "\ufeff",
    "\ufeffa",
    "\u2028",
    "'",
    "\\",
    "{}",
    "ü€😀",
    "\x01\x7f",
    "a" * 5000,
    "t",
    "NaN",
    "0",
    "-- x",
    '\n"\n,"",\n',
]

SAMPLES: dict[str, list[str]] = {
    "bool": ["true", "false"],
    "int2": ["-32768", "0", "32767"],
    "int4": ["-2147483648", "2147483647"],
    "int8": ["-9223372036854775808", "9223372036854775807"],
    "oid": ["0", "4294967295"],
    "xid": ["3", "4294967295"],
    "cid": ["0", "4294967295"],
    "xid8": ["0", "18446744073709551615"],
    "float4": ["NaN", "Infinity", "-Infinity", "-0", "1e-45", "3.4028235e38", "0.1", "16777217", "1.17549435e-38"],
    "float8": ["NaN", "Infinity", "-Infinity", "-0", "5e-324", "1.7976931348623157e308", "0.1", "9007199254740993"],
    "numeric": ["0", "-1.50", "1e-20", "NaN", "Infinity", "123456789012345678901234567890.123456789"],
    "text": HOSTILE,
    "varchar": HOSTILE,
    "bpchar": ["a", "a  ", ""],
    "char": ["a", ""],
    "name": ["a", "A b"],
    "bytea": ["", "\\x00ff", "\\x5c78", "\\x" + "ab" * 3000],
    "date": ["0001-01-01", "1582-10-10", "1970-01-01", "2024-02-29", "9999-12-31"],
    "time": ["00:00:00", "12:34:56.7", "23:59:59.999999"],
    "timetz": ["12:34:56.7+05:30", "00:00:00-15:59:59"],
    "timestamp": ["0001-01-01 00:00:00", "1969-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999"],
    "timestamptz": ["0001-01-02 00:00:00+01", "2024-10-27 01:30:00.5+02", "9999-12-31 23:59:59.999999+00"],
    "interval": ["1 year 2 mons 3 days 04:05:06.7", "-1 mon +2 days", "0", "178000000 years"],
    "uuid": ["00000000-0000-0000-0000-000000000000", "f47ac10b-58cc-4372-a567-0e02b2c3d479"],
    "json": ['{"a":  1, "a": "x\\ny"}', "null"],
    "jsonb": ['{"b": [1.10, null]}', "null"],
    "money": ["12.34", "-1000"],
    "inet": ["10.1.2.3/8", "::1"],
    "cidr": ["10.0.0.0/8"],
    "macaddr": ["08:00:2b:01:02:03"],
    "macaddr8": ["08:00:2b:01:02:03:04:05"],
    "bit": ["1"],
    "varbit": ["", "10101"],
    "xml": [],
    "tsvector": ["a:1 b:2 'c d'"],
    "tsquery": ["a & !b"],
    "point": ["(1,2.5)"],
    "line": ["{1,2,3}"],
    "lseg": ["[(0,0),(1,1)]"],
    "box": ["(1,1),(0,0)"],
    "path": ["((0,0),(1,1))"],
    "polygon": ["((0,0),(1,1),(1,0))"],
    "circle": ["<(0,0),1>"],
    "int2vector": ["1 2 3", ""],
    "oidvector": ["1 2"],
    "tid": ["(0,1)"],
    "pg_lsn": ["16/B374D848"],
    "pg_snapshot": ["10:20:10,14"],
    "txid_snapshot": ["10:20:10,14"],
    "jsonpath": ['$."a"[*]'],
    "refcursor": ["c"],
    "regclass": ["pg_class"],
    "regproc": ["now"],
    "regprocedure": ["now()"],
    "regoper": ["pg_catalog.||/"],
    "regoperator": ["+(integer,integer)"],
    "regtype": ["integer"],
    "regrole": ["reader"],
    "regnamespace": ["public"],
    "int4range": ["[1,5)", "empty"],
    "int8range": ["(,5)"],
    "numrange": ["[1.5,2.5]"],
    "daterange": ["[2024-01-01,2024-02-01)"],
    "tsrange": ['["2024-01-01 00:00:00",)'],
    "tstzrange": ['["2024-01-01 00:00:00+00",)'],
}


def test_every_type_of_the_table_has_samples() -> None:
    assert SAMPLES.keys() == {known.name for known in TYPES}


SPELLED = {"char": '"char"', "xml": "text"}
# Agrees with COPY: the type's own output, where ::text has a mind of its own for inet and char(n).
TEXT = "CASE WHEN {0} IS NOT NULL THEN format('%s', {0}) END"


@pytest.fixture
async def wide(admin: Any) -> Any:
    """One column for each type: the samples, then NULLs."""
    columns = ", ".join(f'"{name}" {SPELLED.get(name, name)}' for name in SAMPLES)
    await admin.execute(f"CREATE TABLE wide (place int, {columns})")
    casts = ", ".join(f"CAST(${n} AS text)::{SPELLED.get(name, name)}" for n, name in enumerate(SAMPLES, 2))
    longest = max(map(len, SAMPLES.values()))
    rows = [(n, *(dict(enumerate(samples)).get(n) for samples in SAMPLES.values())) for n in range(longest + 1)]
    await admin.executemany(f"INSERT INTO wide SELECT $1::int, {casts}", rows)
    return admin


async def test_every_type_is_read_exactly(engine: PostgresEngine, wide: Any) -> None:
    sql = "SELECT " + ", ".join(f'"{name}"' for name in SAMPLES) + " FROM wide ORDER BY place"
    found = await read(engine, sql)
    assert found.schema.types == [BY_NAME[name].arrow or pa.string() for name in SAMPLES]
    expected = [
        TEXT.format(f'"{name}"') if pa.types.is_string(field.type) else f'"{name}"'
        for name, field in zip(SAMPLES, found.schema, strict=True)
    ]
    wanted = await wide.fetch(f"SELECT {', '.join(expected)} FROM wide ORDER BY place")
    for number, field in enumerate(found.schema):
        for one, other in zip(found[number].to_pylist(), (row[number] for row in wanted), strict=True):
            assert _same(field.type, one, other), (field.name, one, other)


async def test_an_array_is_a_list_of_its_elements(engine: PostgresEngine, wide: Any) -> None:
    names = [name for name in SAMPLES if name not in ("box", "xml", "int2vector", "oidvector")]
    aggregates = ", ".join(f'array_agg("{name}" ORDER BY place) AS "{name}"' for name in names)
    await wide.execute(f"""
        CREATE TABLE arrays AS SELECT 1 AS row, {aggregates} FROM wide;
        INSERT INTO arrays SELECT 2, {aggregates} FROM wide WHERE place < 2;
        INSERT INTO arrays VALUES (3{", '{}'" * len(names)}), (4{", NULL" * len(names)}), (5{", '{NULL}'" * len(names)});
    """)
    found = await read(engine, "SELECT " + ", ".join(f'"{name}"' for name in names) + " FROM arrays ORDER BY row")
    assert found.schema.types == [pa.list_(BY_NAME[name].arrow or pa.string()) for name in names]
    # Without the quotes too, which Arrow itself splits.
    plain = await read(
        engine, "SELECT " + ", ".join(f'"{name}"' for name in names) + " FROM arrays WHERE row > 1 ORDER BY row"
    )
    assert repr(plain.to_pylist()) == repr(found.slice(1).to_pylist())  # NaN equals itself only so

    expected = [
        f'ARRAY(SELECT {TEXT.format("e")} FROM unnest("{name}") WITH ORDINALITY AS u (e, n) ORDER BY n)'
        if pa.types.is_string(field.type.value_type)
        else f'"{name}"'
        for name, field in zip(names, found.schema, strict=True)
    ]
    wanted = await wide.fetch(f"SELECT {', '.join(expected)} FROM arrays ORDER BY row")
    for number, field in enumerate(found.schema):
        for one, other in zip(found[number].to_pylist(), (row[number] for row in wanted), strict=True):
            if one is None:
                assert not other
                continue
            for element, value in zip(one, other, strict=True):
                assert _same(field.type.value_type, element, value), (field.name, element, value)
    assert found[0].to_pylist()[2:] == [[], None, [None]]


def _same(arrow: pa.DataType, found: Any, wanted: Any) -> bool:
    """By spelling: NaN equals itself, -0 differs from 0, 1.50 from 1.5."""
    one, other = _comparable(arrow, found, wanted)
    return repr(one) == repr(other)


def _comparable(arrow: pa.DataType, found: Any, wanted: Any) -> tuple[Any, Any]:
    if wanted is None or found is None:
        return found, wanted
    if arrow == pa.float32():
        # The driver widens, the file does not.
        return pa.scalar(found, arrow).as_py(), pa.scalar(wanted, arrow).as_py()
    if pa.types.is_timestamp(arrow) and arrow.tz is not None:
        return found.isoformat(), wanted.isoformat()
    if arrow == pa.uuid():
        return str(found), str(wanted)
    return found, wanted


@pytest.mark.parametrize(
    ("spelled", "arrow", "samples"),
    [
        ("numeric(10,2)", pa.decimal128(10, 2), ["0", "-12345678.90", "0.01"]),
        ("numeric(38,10)", pa.decimal128(38, 10), ["9999999999999999999999999999.9999999999"]),
        ("numeric(38,38)", pa.decimal128(38, 38), ["0.00000000000000000000000000000000000001"]),
        ("numeric(76,5)", pa.decimal256(76, 5), ["-" + "9" * 71 + ".99999"]),
        ("numeric(39,0)", pa.decimal256(39, 0), ["9" * 39]),
        ("numeric(2,-3)", pa.decimal128(5, 0), ["99000", "-1000"]),
        ("numeric(3,5)", pa.decimal128(5, 5), ["0.00999"]),
        ("numeric(77,5)", pa.string(), ["1" * 72]),
        ("numeric", pa.string(), ["0.10", "1e30"]),
    ],
)
async def test_a_numeric_is_a_decimal_of_its_precision(
    engine: PostgresEngine, admin: Any, spelled: str, arrow: pa.DataType, samples: list[str]
) -> None:
    await admin.execute(f"CREATE TABLE v (place serial, v {spelled})")
    await admin.executemany("INSERT INTO v (v) SELECT $1::text::numeric", [(sample,) for sample in [*samples, None]])
    table = await read(engine, "SELECT v, ARRAY[v]::" + spelled + "[] AS list FROM v ORDER BY place")
    assert table.schema.types == [arrow, pa.list_(arrow)]
    wanted = [row[0] for row in await admin.fetch("SELECT v::text FROM v ORDER BY place")]
    assert [
        one if one is None else format(one, "" if arrow == pa.string() else "f") for one in table[0].to_pylist()
    ] == wanted
    assert table[1].to_pylist() == [[one] for one in table[0].to_pylist()]


async def test_domains_enums_composites_and_extensions(engine: PostgresEngine, admin: Any) -> None:
    await admin.execute("""
        CREATE DOMAIN price AS numeric(8,2) CHECK (VALUE > 0);
        CREATE DOMAIN dear AS price;
        CREATE TYPE mood AS ENUM ('sad', 'so, "so"');
        CREATE TYPE pair AS (a int, b text);
        CREATE TYPE text_range AS RANGE (subtype = text);
        CREATE TABLE bool (n int);
        CREATE TABLE odd (
            a price, b dear, c dear[], d mood, e mood[], f pair, g pair[], h text_range, i public.bool, j varchar(3), k char(4),
            l bit(3), m timestamp(0), n box[], o int[][]
        );
        INSERT INTO odd VALUES (
            1.5, 2.5, '{3.5,NULL}', 'so, "so"', ARRAY['sad', 'so, "so"']::mood[], (1, 'x "y"'), ARRAY[(1, NULL)::pair, NULL],
            '[a,b)', ROW(7), 'abc', 'ab', '101', '2024-01-01 00:00:00', ARRAY[box '(1,1),(0,0)'], '{1,2}'
        );
    """)
    table = await read(engine, "SELECT * FROM odd")
    assert table.schema.types[:3] == [pa.decimal128(8, 2)] * 2 + [pa.list_(pa.decimal128(8, 2))]
    row = {name: column[0].as_py() for name, column in zip(table.column_names, table.columns, strict=True)}
    assert [str(row["a"]), str(row["b"]), [str(one) for one in row["c"]]] == ["1.50", "2.50", ["3.50", "None"]]
    assert (row["d"], row["e"]) == ('so, "so"', ["sad", 'so, "so"'])
    assert (row["f"], row["g"]) == ('(1,"x ""y""")', ["(1,)", None])
    assert (row["h"], row["i"], row["j"], row["k"], row["l"]) == ("[a,b)", "(7)", "abc", "ab  ", "101")
    assert (row["n"], row["o"]) == ("{(1,1),(0,0)}", [1, 2])
    described = await engine.table_columns(Query(""), "paddock", "public", "odd")
    assert [column.type for column in described] == table.schema.types


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT 'infinity'::date AS v", "::text"),
        ("SELECT '-infinity'::timestamp AS v", "::text"),
        ("SELECT 'infinity'::timestamptz AS v", "::text"),
        ("SELECT '0044-03-15 BC'::date AS v", "::text"),
        ("SELECT '10000-01-01'::timestamp AS v", "::text"),
        ("SELECT '24:00:00'::time AS v", "::text"),
        ("SELECT ARRAY['24:00:00'::time] AS v", "::text"),
        ("SELECT ARRAY['infinity'::date] AS v", "::text"),
        ("SELECT 'NaN'::numeric(5,2) AS v", "NULLIF"),
        ("SELECT 'NaN'::numeric(50,2) AS v", "NULLIF"),
        ("SELECT ARRAY[['a', 'b'], ['c', 'd']] AS v", "one dimension"),
        ("SELECT ARRAY[[1, 2], [3, 4]] AS v", "one dimension"),
        ("SELECT '[2:3]={1,2}'::int[] AS v", "one dimension"),
        ("SELECT '[2:3]={a,\"b c\"}'::text[] AS v", "one dimension"),
    ],
)
async def test_a_value_that_files_cannot_hold_fails_and_names_its_column(
    engine: PostgresEngine, sql: str, hint: str
) -> None:
    with pytest.raises(PermanentRunnerError) as found:
        await read(engine, sql.replace("SELECT ", "SELECT 1 AS before, ", 1))
    assert found.value.code == "value_not_representable"
    assert "column 'v'" in found.value.message
    assert hint in (found.value.hint or "")


async def test_arrays_of_nothing_but_null(engine: PostgresEngine) -> None:
    table = await read(engine, "SELECT '{NULL,NULL}'::bytea[] AS a, '{NULL}'::uuid[] AS b, '{NULL}'::text[] AS c")

    assert table.to_pylist() == [{"a": [None, None], "b": [None], "c": [None]}]
