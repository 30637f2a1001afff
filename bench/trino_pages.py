"""Pages of Trino to Arrow: our decoders against the official client's own decoding and `pa.array(column, type)`, the
cheapest way to Arrow that its users have. CPU of this process, the two in turn on the same bytes."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from trino.mapper import RowMapperFactory

from bench.environment import Env
from bench.figures import Figure, at_least, shown
from paddock.engines.trino.decoding import decoder_for
from paddock.engines.trino.decoding.by_csv import ByCsv
from paddock.engines.trino.decoding.by_objects import ByObjects
from paddock.engines.trino.types import TrinoColumn, column_of

SEGMENT_ROWS = 50_000  # about 8 MB, as Trino spools
PAGE_ROWS = 6_000  # about 1 MB, as it sends directly
NESTED_ROWS = 10_000

SENTENCE = (
    "carefully final deposits sleep across the ironic pinto beans; blithely regular requests boost furiously among "
    "slyly bold accounts über Straße 東京 naïve Ωmega 🚚 express quickly"
)
WORDS = SENTENCE.split()
HOSTILE = ('said "no"', "C:\\data\\x", "two\nlines", "a,b],[c", "tab\there", "null", "", '"],["', "\u2028", "\x00\x1f")
Columns = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Load:
    name: str
    goal: float
    columns: Columns
    rows: bytes
    count: int


def _type(raw: str, *arguments: Any) -> dict[str, Any]:
    return {"rawType": raw, "arguments": [_argument(argument) for argument in arguments]}


def _argument(argument: Any) -> dict[str, Any]:
    if isinstance(argument, int):
        return {"kind": "LONG", "value": argument}
    if isinstance(argument, tuple):
        name, type_ = argument
        return {"kind": "NAMED_TYPE", "value": {"fieldName": {"name": name}, "typeSignature": type_}}
    return {"kind": "TYPE", "value": argument}


VARCHAR, BIGINT, DOUBLE = _type("varchar", 2147483647), _type("bigint"), _type("double")

FLAT: Columns = [
    {"name": name, "typeSignature": type_}
    for name, type_ in (
        ("order_id", BIGINT),
        ("customer_id", BIGINT),
        ("quantity", _type("integer")),
        ("price", _type("decimal", 12, 2)),
        ("discount", DOUBLE),
        ("returned", _type("boolean")),
        ("status", _type("varchar", 10)),
        ("shipped", _type("date")),
        ("changed", _type("timestamp", 6)),
        ("comment", VARCHAR),
    )
]
NESTED: Columns = [
    {"name": name, "typeSignature": type_}
    for name, type_ in (
        ("id", BIGINT),
        ("name", VARCHAR),
        ("tags", _type("array", VARCHAR)),
        ("counts", _type("map", VARCHAR, BIGINT)),
        ("place", _type("row", ("city", VARCHAR), ("latitude", DOUBLE), ("longitude", DOUBLE))),
        (
            "lines",
            _type("array", _type("row", ("sku", BIGINT), ("price", _type("decimal", 10, 2)), ("on", _type("date")))),
        ),
        ("changed", _type("timestamp", 3)),
    )
]


def _dice() -> random.Random:
    return random.Random(484)


def _text(dice: random.Random) -> str:
    words = " ".join(dice.choices(WORDS, k=dice.randint(4, 12)))
    return f"{words} {dice.choice(HOSTILE)}" if dice.random() < 0.05 else words


def _sometimes(dice: random.Random, value: Any) -> Any:
    return None if dice.random() < 0.03 else value


def _day(dice: random.Random) -> str:
    return (date(1992, 1, 1) + timedelta(days=dice.randrange(12000))).isoformat()


def _moment(dice: random.Random, digits: int) -> str:
    moment = datetime(1992, 1, 1) + timedelta(seconds=dice.randrange(10**9))  # noqa: DTZ001  # as Trino's: no zone
    return f"{moment:%Y-%m-%d %H:%M:%S}.{dice.randrange(10**digits):0{digits}d}"


def _price(dice: random.Random) -> str:
    return str(Decimal(dice.randrange(1, 10**7)).scaleb(-2))


def _flat_row(dice: random.Random, number: int) -> list[Any]:
    return [
        6_000_000_000 + number,
        dice.randrange(10**7),
        dice.randint(1, 50),
        _price(dice),
        "NaN" if dice.random() < 0.001 else dice.random(),
        dice.random() < 0.5,
        dice.choice(("shipped", "open", "returned")),
        _sometimes(dice, _day(dice)),
        _moment(dice, 6),
        _sometimes(dice, _text(dice)),
    ]


def _nested_row(dice: random.Random, number: int) -> list[Any]:
    return [
        number,
        _text(dice),
        _sometimes(dice, dice.choices(WORDS, k=dice.randint(0, 6))),
        {word: dice.randrange(1000) for word in dice.choices(WORDS, k=dice.randint(0, 5))},
        _sometimes(dice, [dice.choice(WORDS), dice.uniform(-90, 90), dice.uniform(-180, 180)]),
        [[dice.randrange(10**6), _price(dice), _day(dice)] for _ in range(dice.randint(0, 6))],
        _moment(dice, 3),
    ]


def _load(name: str, goal: float, columns: Columns, row: Callable[[random.Random, int], list[Any]], count: int) -> Load:
    """Written as Trino does: no spaces, raw UTF-8."""
    dice = _dice()
    rows = [row(dice, number) for number in range(count)]
    return Load(name, goal, columns, json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode(), count)


def loads(*, quick: bool) -> Iterator[Load]:
    divisor = 10 if quick else 1
    yield _load("flat, 8 MB segment", 9, FLAT, _flat_row, SEGMENT_ROWS // divisor)
    yield _load("flat, 1 MB page", 7, FLAT, _flat_row, PAGE_ROWS // divisor)
    yield _load("nested", 5, NESTED, _nested_row, NESTED_ROWS // divisor)


def official(columns: Columns, types: Sequence[pa.DataType]) -> Callable[[bytes], list[pa.Array]]:
    """What `trino.client` does with a segment, then Arrow; for a direct page it decodes the text more often."""
    mapper = RowMapperFactory().create(columns=list(columns), legacy_primitive_types=False)

    def decode(rows: bytes) -> list[pa.Array]:
        mapped = mapper.map(json.loads(rows.decode("utf8")))
        return [pa.array([ready(row[place]) for row in mapped], type_) for place, ready, type_ in places]

    def decode_flat(rows: bytes) -> list[pa.Array]:
        mapped = mapper.map(json.loads(rows.decode("utf8")))
        return [pa.array([row[place] for row in mapped], type_) for place, _, type_ in places]

    places = [(place, _ready(type_), type_) for place, type_ in enumerate(types)]
    return decode if any(map(pa.types.is_nested, types)) else decode_flat


def _ready(type_: pa.DataType) -> Callable[[Any], Any]:
    """The client's tuples and dictionaries in the form that `pa.array` takes: its users must write this too, and it is
    counted as theirs."""
    if pa.types.is_map(type_):
        return lambda value: None if value is None else list(value.items())
    if pa.types.is_struct(type_):
        names = [field.name for field in type_]
        return lambda value: None if value is None else dict(zip(names, value, strict=True))
    if pa.types.is_list(type_) and pa.types.is_nested(type_.value_type):
        inner = _ready(type_.value_type)
        return lambda value: None if value is None else [inner(item) for item in value]
    return lambda value: value


def _cpu(decode: Callable[[bytes], Any], rows: bytes, times: int) -> float:
    started = time.process_time()
    for _ in range(times):
        decode(rows)
    return (time.process_time() - started) / times


def compare(load: Load, rounds: int) -> list[Figure]:
    columns: list[TrinoColumn] = [column_of(column) for column in load.columns]
    ours = decoder_for(columns)
    theirs = official(load.columns, [column.type for column in columns])
    batch = ours.decode(load.rows)
    for mine, expected in zip(batch.columns, theirs(load.rows), strict=True):
        # As text: NaN equals itself there.
        if mine.to_pylist().__repr__() != expected.to_pylist().__repr__():
            raise RuntimeError(f"{load.name}: the two do not give the same rows.")
    times = max(1, SEGMENT_ROWS // load.count)
    objects = ByObjects(columns)
    measured = []
    by_objects = []
    for _ in range(rounds):
        measured.append((_cpu(theirs, load.rows, 1 if times == 1 else 2), _cpu(ours.decode, load.rows, times)))
        by_objects.append(_cpu(objects.decode, load.rows, times) / measured[-1][1])
    size = f"{len(load.rows) / 1e6:.1f} MB, {load.count:,} rows"
    figures = [
        at_least(f"{load.name}: official client + pa.array / ours", [a / b for a, b in measured], load.goal, note=size),
        shown(f"{load.name}: ours", [load.count / b / 1e3 for _, b in measured], "krows/cpu-s"),
        shown(f"{load.name}: official", [load.count / a / 1e3 for a, _ in measured], "krows/cpu-s"),
    ]
    if isinstance(ours, ByCsv):
        figures.append(shown(f"{load.name}: our way by objects / by CSV", by_objects, "x"))
    return figures


async def run(env: Env) -> list[Figure]:
    rounds = 2 if env.quick else 7
    return [figure for load in loads(quick=env.quick) for figure in compare(load, rounds)]
