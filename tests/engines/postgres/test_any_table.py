"""Any table of declared types, written through the driver's binary protocol, reads back equal."""

from datetime import UTC
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.engines.postgres.arrays import elements_of
from paddock.engines.postgres.engine import PostgresEngine
from paddock.engines.postgres.text import parameters_of, replaced, tokens, without_semicolon
from tests.engines.postgres.reading import read
from tests.examples import examples

NUMBERS = count(1)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20) | st.sampled_from(
    ["", "NULL", "\\.", '"', "\n", "\ufeff", "{}", ","]
)
INTEGERS = st.integers(-(2**31), 2**31 - 1)
# Past the first and last years, a zone's offset would leave what Python can say.
TYPES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int2": st.integers(-(2**15), 2**15 - 1),
    "int4": INTEGERS,
    "int8": st.integers(-(2**63), 2**63 - 1),
    "float4": st.floats(width=32),
    "float8": st.floats(),
    "text": TEXT,
    "bytea": st.binary(max_size=20),
    "date": st.dates(),
    "time": st.times(),
    "timestamp": st.datetimes(),
    "timestamptz": st.datetimes(timezones=st.just(UTC)),
    "numeric(20,5)": st.decimals(-(10**14), 10**14, places=5),
    "numeric(60,30)": st.decimals(-(10**29), 10**29, places=30, allow_nan=False),
    "uuid": st.uuids(),
    "int4[]": st.lists(st.none() | INTEGERS, max_size=4),
    "text[]": st.lists(st.none() | TEXT, max_size=4),
    "bytea[]": st.lists(st.none() | st.binary(max_size=5), max_size=4),
    "timestamp[]": st.lists(st.none() | st.datetimes(), max_size=4),
    "uuid[]": st.lists(st.none() | st.uuids(), max_size=4),
    "bool[]": st.lists(st.none() | st.booleans(), max_size=4),
    "time[]": st.lists(st.none() | st.times(), max_size=4),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[tuple[Any, ...]]]:
    types = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=6))
    rows = draw(st.lists(st.tuples(*(st.none() | TYPES[name] for name in types)), max_size=15))
    return types, rows


def _spelled(values: list[tuple[Any, ...]]) -> str:
    """NaN equals itself and -0 differs from 0."""
    return repr([[_plain(value) for value in row] for row in values])


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(element) for element in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value) if hasattr(value, "hex") else value


@pytest.mark.examples
@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(tables())
async def test_any_table_reads_back_equal(
    engine: PostgresEngine, admin: Any, table: tuple[list[str], list[tuple[Any, ...]]]
) -> None:
    types, rows = table
    columns = ", ".join(f"c{number} {name}" for number, name in enumerate(types))
    name = f"t{next(NUMBERS)}"
    await admin.execute(f"CREATE TABLE {name} (place int, {columns})")
    await admin.copy_records_to_table(name, records=[(place, *row) for place, row in enumerate(rows)])

    names = ", ".join(f"c{number}" for number in range(len(types)))
    found = await read(engine, f"SELECT {names} FROM {name} ORDER BY place")

    lists = [column.to_pylist() for column in found.columns]
    assert _spelled(list(zip(*lists, strict=True))) == _spelled(rows)


@given(st.lists(st.none() | TEXT, max_size=6))
def test_an_arrays_text_is_taken_apart(elements: list[str | None]) -> None:
    written = (
        "NULL" if element is None else '"' + element.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for element in elements
    )
    assert elements_of("{" + ",".join(written) + "}") == elements


SQL = st.lists(
    st.sampled_from(
        [":a", ":b", "::", ":=", "'", "''", "E'", "\\", '"', "$$", "$x$", "--", "\n", "/*", "*/", ";", " x", "1"]
    )
).map("".join)


@given(SQL)
def test_a_text_is_cut_into_tokens_and_nothing_is_lost(sql: str) -> None:
    assert "".join(sql[token.start : token.end] for token in tokens(sql)) == sql
    assert sql.startswith(without_semicolon(sql))
    found = parameters_of(sql, {"a": 1})
    assert replaced(sql, found, {"a": ":a"}).replace(" :a ", ":a") == sql
