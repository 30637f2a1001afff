"""Whatever a mapping can declare comes back from the graph as it went in: as JSON in the words of JSON Lines exports, and
as Arrow in the types of the snapshot's own files."""

import datetime
import math
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from paddock.declared_arrow import arrow_of
from paddock.declared_types import parse
from paddock.exports.converting import converted
from paddock.exports.writing.text import json_text
from paddock.graphs.children.arrow_answers import ArrowPieces
from tests.graphs.running import RunningInstance, edges, instance, nodes

HIGH_UUID = uuid.UUID("ffeebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
LOW_UUID = uuid.UUID(int=1)  # ryugraph refuses the one that is all zeros
DAY, FIRST, LAST = datetime.date(2024, 2, 29), datetime.date(1, 1, 1), datetime.date(9999, 12, 31)
NOON = datetime.datetime.fromisoformat("2024-02-29 12:00:00.000001")
BEGIN = datetime.datetime.fromisoformat("0001-01-01 00:00:00")
END = datetime.datetime.fromisoformat("9999-12-31 23:59:59.999999")

# Three values for each type; a fourth row is NULL everywhere.
VALUES: dict[str, list[Any]] = {
    "STRING": ["", "a 'quoted' \"text\"\n\t\\", "Zürich 🐎 \u0001"],
    "INT8": [-128, 0, 127],
    "INT16": [-32768, 1, 32767],
    "INT32": [-(2**31), 2, 2**31 - 1],
    "INT64": [-(2**63), 2**53 + 1, 2**63 - 1],
    "FLOAT": [0.1, math.inf, 3.4028234663852886e38],
    "DOUBLE": [-0.0, math.nan, 1.7976931348623157e308],
    "BOOL": [True, False, True],
    "DATE": [FIRST, DAY, LAST],
    "TIMESTAMP": [BEGIN, NOON, END],
    "UUID": [LOW_UUID, HIGH_UUID, uuid.UUID("00000000-0000-0000-8000-000000000001")],
    "BLOB": [b"", b"\x00\xff\xfe", b"plain"],
    "DECIMAL(10,2)": [Decimal("-99999999.99"), Decimal("0.01"), Decimal("12.30")],
    "DECIMAL(38,20)": [Decimal("1E-20"), Decimal("-123456789012345678.00000000000000000001"), Decimal(0)],
    "DECIMAL(4,0)": [Decimal(-9999), Decimal(0), Decimal(1)],
    "LIST(STRING)": [[], ["a", None, ""], ["x"]],
    "LIST(FLOAT)": [[0.1], [math.nan, -math.inf], [-0.0]],
    "LIST(UUID)": [[HIGH_UUID, None], [], [LOW_UUID]],
    "LIST(LIST(INT64))": [[[1], [], None], [], [[2, None]]],
    "LIST(TIMESTAMP)": [[BEGIN], [END, NOON], []],
    "MAP(STRING, INT64)": [[], [("a", 1), ("b", None)], [("", -1)]],
    # One less, and ryugraph makes it 0.
    "MAP(INT64, STRING)": [[(1, "one")], [], [(-(2**63) + 1, "least")]],
    "MAP(DATE, TIMESTAMP)": [[(DAY, NOON)], [], [(LAST, None)]],
    "STRUCT(a INT64, b STRING)": [{"a": 1, "b": None}, {"a": None, "b": ""}, {"a": 2, "b": "x"}],
    "STRUCT(order INT64, end STRUCT(Group STRING))": [
        {"order": 1, "end": {"Group": "x"}},
        {"order": None, "end": {"Group": None}},
        {"order": 2, "end": {"Group": ""}},
    ],
    "STRUCT(price DECIMAL(6,3), id UUID)": [
        {"price": Decimal("1.500"), "id": HIGH_UUID},
        {"price": None, "id": None},
        {"price": Decimal("-999.999"), "id": LOW_UUID},
    ],
    "STRUCT(deep STRUCT(l LIST(STRING), m MAP(STRING, DOUBLE)))": [
        {"deep": {"l": ["a"], "m": [("x", 0.5)]}},
        {"deep": {"l": [], "m": []}},
        {"deep": None},
    ],
}
KEYS = ["one", "two", "three", "nothing"]
NAMES = [f"p{number}" for number in range(len(VALUES))]


def column(type: str) -> pa.Array:
    """As a snapshot's file holds it."""
    wanted = arrow_of(parse(type))
    values = [*VALUES[type], None]
    return converted(pa.array(_texts(values), _storage(wanted)), wanted)


def _storage(type: pa.DataType) -> pa.DataType:
    """Arrow makes no UUIDs inside of other types out of Python's values; from text the exports do."""
    if type == pa.uuid():
        return pa.string()
    if pa.types.is_list(type):
        return pa.list_(_storage(type.value_type))
    if pa.types.is_struct(type):
        return pa.struct([pa.field(field.name, _storage(field.type)) for field in type])
    return type


def _texts(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, list):
        return [_texts(one) for one in value]
    if isinstance(value, dict):
        return {name: _texts(one) for name, one in value.items()}
    return value


def same(one: Any, two: Any) -> bool:
    """Equal, where NaN is equal to itself and -0.0 is not 0.0."""
    return repr(one) == repr(two)


async def arrow(running: RunningInstance, text: str) -> pa.Table:
    answer = await running.query(text, accept=ArrowPieces.media_type)
    assert answer.status_code == 200, answer.text
    return pa.ipc.open_stream(answer.content).read_all()


@pytest.mark.parametrize("wrapper_type", ["ladybug", "ryugraph"])
async def test_every_type_comes_back_equal(tmp_path: Path, wrapper_type: str) -> None:
    columns = {name: column(type) for name, type in zip(NAMES, VALUES, strict=True)}
    declared = list(zip(NAMES, VALUES, strict=True))
    things = pa.table({"key": KEYS, **columns})
    links = pa.table({"from": KEYS, "to": KEYS, **columns})
    store = tmp_path / "store"
    plan = {
        "nodes": [nodes(store, "Thing", ("key", "STRING"), declared, things)],
        "edges": [edges(store, "LINK", ("Thing", "Thing"), declared, links)],
    }
    wanted_json = [[orjson.loads(text) for text in json_text(one).to_pylist()] for one in columns.values()]
    listed = ", ".join(f"t.{name}" for name in NAMES)
    async with instance(tmp_path / "instance", wrapper_type=wrapper_type) as running:
        status = await running.load(plan)
        assert status["phase"] == "ready", status["error"]
        for pattern in ("(t:Thing)", "(:Thing)-[t:LINK]->(k:Thing)"):
            order = "t.key" if "LINK" not in pattern else "k.key"
            text = f"MATCH {pattern} WITH * ORDER BY {order} LIMIT 10 RETURN {listed}"
            by_key = sorted(range(4), key=lambda place: KEYS[place])

            rows = await running.rows(text)
            # Plain values alone take another way to Arrow than those that come with nested ones.
            table = await arrow(running, text)
            plain = [name for name, type in declared if not type.startswith(("LIST", "MAP", "STRUCT"))]
            plain_table = await arrow(running, text.replace(listed, ", ".join(f"t.{name}" for name in plain)))

            for place, (name, type) in enumerate(declared):
                found = [row[place] for row in rows]
                assert same(found, [wanted_json[place][number] for number in by_key]), f"{type} as JSON"
                expected = columns[name].take(by_key)
                for one in [table.column(place)] + ([plain_table.column(plain.index(name))] if name in plain else []):
                    assert one.type == expected.type, f"{type} as Arrow"
                    assert same(one.to_pylist(), expected.to_pylist()), f"{type} as Arrow"

        whole = await running.rows("MATCH (t:Thing {key: 'two'}) RETURN t")
        expected_node = {name: wanted_json[place][1] for place, name in enumerate(NAMES)}
        found_node = whole[0][0]
        assert (found_node.pop("_label"), found_node.pop("key")) == ("Thing", "two")
        assert found_node.pop("_id").count(":") == 1
        for name, type in declared:
            if wrapper_type == "ryugraph" and type.startswith("STRUCT"):
                continue  # inside of a whole node it shows another row's value where a struct's field is NULL
            assert same(found_node[name], expected_node[name]), f"{type} in a node"
        assert found_node.keys() == expected_node.keys()


@pytest.mark.parametrize("wrapper_type", ["ladybug", "ryugraph"])
@pytest.mark.parametrize(
    ("type", "keys"),
    [("INT64", [-(2**63) + 1, 0, 7]), ("DATE", [FIRST, DAY, LAST]), ("UUID", [LOW_UUID, HIGH_UUID, uuid.uuid4()])],
)
async def test_every_type_of_key_joins_edges(tmp_path: Path, wrapper_type: str, type: str, keys: list[Any]) -> None:
    wanted = arrow_of(parse(type))
    column = converted(pa.array(_texts(keys), _storage(wanted)), wanted)
    store = tmp_path / "store"
    plan = {
        "nodes": [nodes(store, "Thing", ("key", type), [], pa.table({"key": column}))],
        "edges": [edges(store, "NEXT", ("Thing", "Thing"), [], pa.table({"a": column, "b": column.take([1, 2, 0])}))],
    }
    async with instance(tmp_path / "instance", wrapper_type=wrapper_type) as running:
        status = await running.load(plan)
        assert status["phase"] == "ready", status["error"]
        rows = await running.rows("MATCH (a:Thing)-[:NEXT]->(b:Thing) RETURN a.key, b.key")

    texts = [orjson.loads(text) for text in json_text(column).to_pylist()]
    assert sorted(map(tuple, rows)) == sorted([(texts[0], texts[1]), (texts[1], texts[2]), (texts[2], texts[0])])
