"""Tables that nobody thought of: random names, types nested in each other, and values, loaded back and compared."""

import asyncio
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.engines.children.quoting import literal, quoted
from tests.dumps.duckdb.equality import assert_same_csv, assert_same_json
from tests.dumps.duckdb.loading import assert_same, dumped, made
from tests.examples import examples

# Not how dumps write values: by bytes, bits and counts.
TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["", "NULL", "it's", "a\0b", "\r\n", "\\", "\\r\r", "\u00a0", "\u3000", '"', "[1, 2]", "{'a': 1}", "--", "$$", "🦆"]
)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=8) | st.sampled_from(
    [
        "select",
        "a b",
        'a"b',
        "it's",
        "x0",
        "t",
        "#",
        "main",
        "GENERATED ALWAYS AS(",
        "a,b",
        "a)b",
        "value",
        "key",
        "ünï",
    ]
)


@dataclass(frozen=True)
class Random:
    sql: str
    values: st.SearchStrategy[str]


def _text(value: str) -> str:
    return f"decode(unhex('{value.encode().hex()}'))"


def _whole(type: str, low: int, high: int) -> Random:
    return Random(type, st.integers(low, high).map(lambda n: f"'{n}'::{type}"))


def _counted(type: str, form: str, most: int, least: int | None = None) -> Random:
    numbers = st.integers(-most if least is None else least, most)
    return Random(type, numbers.map(lambda n: form.format(n)))


def _bits(type: str, bits: int) -> Random:
    return Random(type, st.integers(0, 2**bits - 1).map(lambda n: f"'{n:0{bits}b}'::BIT::{type}"))


def _decimal(draw: st.DrawFn) -> Random:
    width = draw(st.integers(1, 38))
    scale = draw(st.integers(0, width))
    values = st.integers(1 - 10**width, 10**width - 1).map(
        lambda n: (
            f"'{'-' if n < 0 else ''}{abs(n) // 10**scale}.{abs(n) % 10**scale:0{scale}}'::DECIMAL({width},{scale})"
            if scale
            else f"'{n}'::DECIMAL({width},0)"
        )
    )
    return Random(f"DECIMAL({width},{scale})", values)


def _enum(draw: st.DrawFn) -> Random:
    labels = draw(
        st.lists(
            st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=5),
            min_size=1,
            max_size=4,
            unique=True,
        )
    )
    type = f"ENUM({', '.join(map(literal, labels))})"
    return Random(type, st.sampled_from(labels).map(lambda label: f"{literal(label)}::{type}"))


INTERVALS = st.tuples(
    st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
) | st.tuples(st.integers(-30, 30), st.integers(-40, 40), st.integers(-(10**11), 10**11))
SCALARS = st.one_of(
    st.sampled_from(
        [
            _whole("TINYINT", -(2**7), 2**7 - 1),
            _whole("BIGINT", -(2**63), 2**63 - 1),
            _whole("UBIGINT", 0, 2**64 - 1),
            _whole("HUGEINT", -(2**127), 2**127 - 1),
            _whole("UHUGEINT", 0, 2**128 - 1),
            _whole("BIGNUM", -(10**60), 10**60),
            _bits("DOUBLE", 64),
            _bits("FLOAT", 32),
            Random("BOOLEAN", st.sampled_from(["true", "false"])),
            Random("VARCHAR", TEXT.map(_text)),
            Random("JSON", TEXT.map(lambda text: f"{_text(json.dumps([text, 1.5]))}::JSON")),
            Random("BLOB", st.binary(max_size=8).map(lambda data: f"unhex('{data.hex()}')")),
            Random("BIT", st.text("01", min_size=1, max_size=20).map(lambda bits: f"'{bits}'::BIT")),
            Random("UUID", st.uuids().map(lambda one: f"'{one}'::UUID")),
            _counted("DATE", "('1970-01-01'::DATE + {})", 2_000_000),
            _counted("TIME", "('00:00:00'::TIME + to_microseconds({}))", 86_399_999_999, 0),
            _counted("TIMESTAMP", "make_timestamp({})", 2**62),
            _counted("TIMESTAMP_S", "make_timestamp({}::BIGINT * 1000000)::TIMESTAMP_S", 2**42),
            _counted("TIMESTAMP_MS", "make_timestamp_ms({})::TIMESTAMP_MS", 2**52),
            _counted("TIMESTAMP_NS", "make_timestamp_ns({})", 2**62),
            _counted("TIMESTAMPTZ", "make_timestamptz({})", 2**62),
            Random(
                "INTERVAL",
                INTERVALS.map(lambda parts: "(to_months({}) + to_days({}) + to_microseconds({}))".format(*parts)),
            ),
        ]
    ),
    st.composite(_decimal)(),
    st.composite(_enum)(),
)


def _nullable(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return values | st.just("NULL")


def _list(item: Random) -> Random:
    type = f"{item.sql}[]"
    items = st.lists(_nullable(item.values), max_size=3)
    return Random(type, items.map(lambda values: f"[{', '.join(values)}]::{type}"))


def _array(item: Random) -> Random:
    type = f"{item.sql}[2]"
    items = st.lists(_nullable(item.values), min_size=2, max_size=2)
    return Random(type, items.map(lambda values: f"[{', '.join(values)}]::{type}"))


def _names(count: int) -> st.SearchStrategy[list[str]]:
    return st.lists(NAMES, min_size=count, max_size=count, unique_by=str.casefold)


def _struct(draw: st.DrawFn, inner: st.SearchStrategy[Random]) -> Random:
    fields = draw(st.lists(inner, min_size=1, max_size=3))
    names = draw(_names(len(fields)))
    type = f"STRUCT({', '.join(f'{quoted(name)} {field.sql}' for name, field in zip(names, fields, strict=True))})"
    values = st.tuples(*(_nullable(field.values) for field in fields)).map(
        lambda parts: "{" + ", ".join(f"{literal(n)}: {v}" for n, v in zip(names, parts, strict=True)) + f"}}::{type}"
    )
    return Random(type, values)


def _union(draw: st.DrawFn, inner: st.SearchStrategy[Random]) -> Random:
    members = draw(st.lists(inner, min_size=1, max_size=3))
    names = draw(_names(len(members)))
    type = f"UNION({', '.join(f'{quoted(name)} {member.sql}' for name, member in zip(names, members, strict=True))})"

    def of(name: str, member: Random) -> st.SearchStrategy[str]:
        return _nullable(member.values).map(
            lambda value: f"union_value({quoted(name)} := {value}::{member.sql})::{type}"
        )

    values = [of(name, member) for name, member in zip(names, members, strict=True)]
    return Random(type, st.one_of(values))


def _map(draw: st.DrawFn, inner: st.SearchStrategy[Random]) -> Random:
    value = draw(inner)
    key, form = draw(st.sampled_from([("BIGINT", str), ("VARCHAR", _text), ("BIGINT[]", lambda n: f"[{n}]")]))
    keys: st.SearchStrategy[object] = TEXT if key == "VARCHAR" else st.integers(-9, 9)
    type = f"MAP({key}, {value.sql})"
    entries = st.lists(st.tuples(keys, _nullable(value.values)), max_size=3, unique_by=lambda entry: entry[0])
    write: Callable[[object], str] = form  # type: ignore[assignment]
    return Random(
        type,
        entries.map(lambda found: f"MAP {{{', '.join(f'{write(key)}: {value}' for key, value in found)}}}::{type}"),
    )


TYPES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        inner.map(_list),
        inner.map(_array),
        st.composite(_struct)(inner),
        st.composite(_union)(inner),
        st.composite(_map)(inner),
    ),
    max_leaves=5,
)


@st.composite
def databases(draw: st.DrawFn) -> list[str]:
    statements = []
    schema = draw(NAMES.filter(lambda name: name.lower() not in {"main", "made"}))
    statements.append(f"CREATE SCHEMA {quoted(schema)}")
    count = draw(st.integers(1, 3))
    for name in draw(_names(count)):
        table = draw(st.sampled_from([quoted(name), f"{quoted(schema)}.{quoted(name)}"]))
        types = draw(st.lists(TYPES, min_size=1, max_size=4))
        columns = draw(_names(len(types)))
        listed = ", ".join(f"{quoted(column)} {type.sql}" for column, type in zip(columns, types, strict=True))
        statements.append(f"CREATE TABLE {table}({listed})")
        rows = draw(st.lists(st.tuples(*(_nullable(type.values) for type in types)), max_size=4))
        statements.extend(f"INSERT INTO {table} VALUES ({', '.join(row)})" for row in rows)
    return statements


@pytest.mark.slow
@pytest.mark.examples
@pytest.mark.timeout(600)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(databases())
def test_random_tables_come_back(statements: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = made(Path(folder) / "a.db", statements)

        script = asyncio.run(dumped(path, "sql"))

        assert_same(path, script)
        with duckdb.connect(str(path), read_only=True) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            assert_same_json(connection, asyncio.run(dumped(path, "json")))
            assert_same_csv(connection, asyncio.run(dumped(path, "csv")))
