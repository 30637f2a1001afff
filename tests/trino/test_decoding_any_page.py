"""Pages made by hypothesis: two decoders that share no way of reading must give the same rows, to the bit."""

import base64
import json
import re
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from paddock.engines.trino.decoding import BadPage, decoder_for
from paddock.engines.trino.decoding.by_csv import _SPACED, ByCsv
from paddock.engines.trino.decoding.by_objects import ByObjects
from tests.trino.pages import BIGINT, BOOLEAN, DOUBLE, VARBINARY, VARCHAR, Json, columns, signature, written
from tests.trino.test_decoding import same

pytestmark = pytest.mark.slow

# What a page is made of, and what the quick way turns it into.
PIECES = [
    *('"', "\\", "],[", "[[", "]]", "[", "]", ",", "\n", "\r", "\t", "\b", "\f", "\x00", "\x1f", "\x7f"),
    *(
        "null",
        "true",
        "NaN",
        "\u2028",
        "\u2029",
        "\ufeff",
        "😀",
        "é",
        "ÿ",
        "þ",
        "ý",
        "ù",
        "\U0010ffff",
        " ",
        "\\n",
        "\\u0022",
    ),
]
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)
DAYS = st.integers(-719162, 2932896).map(lambda days: (date(1970, 1, 1) + timedelta(days=days)).isoformat())


def _fraction(digits: int) -> st.SearchStrategy[str]:
    return st.integers(0, 10**digits - 1).map(lambda number: f".{number:0{digits}d}" if digits else "")


def _clock(digits: int) -> st.SearchStrategy[str]:
    second = st.integers(0, 86399).map(lambda n: f"{n // 3600:02d}:{n // 60 % 60:02d}:{n % 60:02d}")
    return st.tuples(second, _fraction(digits)).map("".join)


def _moments(digits: int, days: st.SearchStrategy[str] = DAYS) -> st.SearchStrategy[str]:
    return st.tuples(days, _clock(digits)).map(" ".join)


def _decimal(precision: int, scale: int) -> st.SearchStrategy[str]:
    def written_out(number: int) -> str:
        digits = f"{abs(number):0{scale + 1}d}"
        whole, fraction = (digits[:-scale], "." + digits[-scale:]) if scale else (digits, "")
        return ("-" if number < 0 else "") + whole + fraction

    return st.integers(-(10**precision) + 1, 10**precision - 1).map(written_out)


def _bits(size: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (size - 1)), (1 << (size - 1)) - 1)


NANOSECOND_DAYS = st.integers(-106751, 106751).map(lambda days: (date(1970, 1, 1) + timedelta(days=days)).isoformat())
NOT_FINITE = st.sampled_from(["NaN", "Infinity", "-Infinity", -0.0])
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
# As Java writes a float: the shortest text that no other float has.
_REALS = st.floats(width=32, allow_nan=False, allow_infinity=False).map(
    lambda number: float(pa.array([number], pa.float32()).cast(pa.string())[0].as_py())
)
SCALARS: list[tuple[Json, st.SearchStrategy[Any]]] = [
    (BOOLEAN, st.booleans()),
    (signature("tinyint"), _bits(8)),
    (signature("smallint"), _bits(16)),
    (signature("integer"), _bits(32)),
    (BIGINT, _bits(64)),
    (DOUBLE, st.one_of(FLOATS, NOT_FINITE)),
    (signature("real"), st.one_of(_REALS, NOT_FINITE)),
    (signature("decimal", 38, 10), _decimal(38, 10)),
    (signature("decimal", 9, 0), _decimal(9, 0)),
    (VARCHAR, TEXTS),
    (signature("json"), TEXTS),
    (VARBINARY, st.binary(max_size=8).map(lambda data: base64.b64encode(data).decode())),
    (signature("date"), DAYS),
    (signature("time", 3), _clock(3)),
    (signature("time", 9), _clock(9)),
    (signature("timestamp", 0), _moments(0)),
    (signature("timestamp", 6), _moments(6)),
    (signature("timestamp", 9), _moments(9, NANOSECOND_DAYS)),
    (signature("timestamp with time zone", 3), _moments(3).map(lambda text: text + " UTC")),
    (signature("uuid"), st.uuids().map(str)),
    (signature("unknown"), st.none()),
]

Shape = tuple[Json, st.SearchStrategy[Any]]


def _array(element: Shape) -> Shape:
    type_, values = element
    return signature("array", type_), st.lists(st.one_of(st.none(), values), max_size=3)


def _map(value: Shape) -> Shape:
    type_, values = value
    return signature("map", VARCHAR, type_), st.dictionaries(TEXTS, st.one_of(st.none(), values), max_size=3)


def _row(fields: list[Shape]) -> Shape:
    named = [("same", type_) for type_, _ in fields]
    return signature("row", *named), st.tuples(*(st.one_of(st.none(), values) for _, values in fields)).map(list)


def nested() -> st.SearchStrategy[Shape]:
    return st.recursive(
        st.sampled_from(SCALARS),
        lambda inner: st.one_of(inner.map(_array), inner.map(_map), st.lists(inner, min_size=1, max_size=3).map(_row)),
        max_leaves=6,
    )


@st.composite
def pages(draw: st.DrawFn, shapes: st.SearchStrategy[Shape]) -> tuple[list[Json], list[list[Any]]]:
    chosen = draw(st.lists(shapes, min_size=1, max_size=4))
    row = st.tuples(*(st.one_of(values, values, st.none()) for _, values in chosen)).map(list)
    return [type_ for type_, _ in chosen], draw(st.lists(row, min_size=1, max_size=8))


Page = tuple[list[Json], list[list[Any]]]


@settings(deadline=None, max_examples=200)
@given(pages(st.sampled_from(SCALARS)))
def test_any_flat_page_is_read_the_same_both_ways(page: Page) -> None:
    types, rows = page
    shaped, text = columns(*types), written(rows)
    assume(not _SPACED.search(text))

    quickly = ByCsv(shaped).quickly(text)

    quickly.validate(full=True)
    assert same(quickly, ByObjects(shaped).decode(text))


@settings(deadline=None, max_examples=200)
@given(st.lists(TEXTS.map(lambda text: [text]), min_size=1))
def test_any_text_comes_out_as_it_went_in(rows: list[list[str]]) -> None:
    text = written(rows)
    assume(not _SPACED.search(text))
    batch = ByCsv(columns(VARCHAR)).quickly(text)
    assert batch.column(0).to_pylist() == [text for [text] in rows]


@settings(deadline=None, max_examples=200)
@given(pages(st.sampled_from(SCALARS)), st.sampled_from([" , ", ", ", " ,"]))
def test_spaces_between_values_change_nothing(page: Page, comma: str) -> None:
    types, rows = page
    shaped = columns(*types)
    spaced = json.dumps(rows, separators=(comma, ":"), ensure_ascii=False).encode()
    assert same(ByCsv(shaped).decode(spaced), ByObjects(shaped).decode(written(rows)))


@settings(deadline=None, max_examples=100)
@given(pages(nested()))
def test_any_nested_page_is_read_whole(page: Page) -> None:
    types, rows = page
    batch = decoder_for(columns(*types)).decode(written(rows))
    batch.validate(full=True)
    for place, column in enumerate(batch.columns):
        assert column.is_valid().to_pylist() == [row[place] is not None for row in rows]


@settings(deadline=None, max_examples=200)
@given(pages(st.sampled_from(SCALARS)), st.data())
def test_a_page_cut_anywhere_is_never_read(page: Page, data: st.DataObject) -> None:
    types, rows = page
    text = written(rows)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    with pytest.raises(BadPage):
        decoder_for(columns(*types)).decode(cut)


_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[^\[\],"]+', re.DOTALL)
_BARE = re.compile(rb" *(?:null|true|false|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?) *")
_ODD_WORDS = re.compile(rb'"[+-]?(?:nan|inf|infinity) *"', re.IGNORECASE)


def _loose(page: bytes) -> bool:
    """What the quick way says that it does not notice: letters behind a closing quote, numbers in forms of their own."""
    for token in _TOKENS.finditer(page):
        if token.group().startswith(b'"'):
            if page[token.end() : token.end() + 1] not in (b",", b"]") or _ODD_WORDS.fullmatch(token.group()):
                return True
        elif token.group() != b"," and not _BARE.fullmatch(token.group()):
            return True
    return False


@settings(deadline=None, max_examples=200)
@given(pages(st.sampled_from(SCALARS)), st.data())
def test_one_changed_byte_is_read_the_same_both_ways_or_refused(page: Page, data: st.DataObject) -> None:
    types, rows = page
    shaped, text = columns(*types), written(rows)
    place = data.draw(st.integers(0, len(text) - 1))
    byte = data.draw(st.one_of(st.sampled_from(list(b' "\\[],\n\t0nx\xff')), st.integers(0, 255)))
    changed = text[:place] + bytes((byte,)) + text[place + 1 :]
    try:
        quickly = ByCsv(shaped).quickly(changed)
    except (ValueError, TypeError, pa.ArrowException):
        return  # left to the other
    try:
        expected = ByObjects(shaped).decode(changed)
    except BadPage:
        assert _loose(changed), "read quickly, refused otherwise"
    else:
        assert same(quickly, expected)
