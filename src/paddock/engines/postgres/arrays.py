"""PostgreSQL's text of an array, `{1,NULL,"a, \\"b\\""}`, taken apart.

Most blocks hold no quotes and are split by Arrow; the others value by value. Both give the elements of all values one
after the other, and how many each value has (NULL has none).
"""

import re

import pyarrow as pa
import pyarrow.compute as pc

_ELEMENT = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|([^",{}\\]+))(,|$)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def split(texts: pa.Array, characters: bytes) -> tuple[pa.Array, pa.Array]:
    if b'"' in characters or characters.count(b"{") != len(texts) - texts.null_count:
        return _by_value(texts)
    if not pc.all(pc.starts_with(texts, "{"), min_count=0).as_py():
        raise ValueError("an array that does not start at 1")
    inside = pc.utf8_slice_codeunits(texts, 1, -1)
    lists = pc.split_pattern(inside, ",")
    # Splitting nothing gives one empty element; a real empty text would be quoted.
    elements = lists.flatten()
    elements = elements.filter(pc.not_equal(elements, ""))
    lengths = pc.if_else(pc.equal(inside, ""), 0, pc.list_value_length(lists)).fill_null(0)
    return pc.if_else(pc.equal(elements, "NULL"), None, elements), lengths


def _by_value(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    elements: list[str | None] = []
    lengths: list[int] = []
    for text in texts.to_pylist():
        found = [] if text is None else elements_of(text)
        elements += found
        lengths.append(len(found))
    return pa.array(elements, pa.string()), pa.array(lengths, pa.int32())


def elements_of(text: str) -> list[str | None]:
    if not text.startswith("{"):
        raise ValueError("an array that does not start at 1")
    if text.startswith("{{"):
        raise ValueError("an array of more than one dimension")
    inside = text[1:-1]
    elements: list[str | None] = []
    position = 0
    while position < len(inside):
        found = _ELEMENT.match(inside, position)
        if found is None:
            raise ValueError("an array that cannot be read")
        elements.append(_element(found[1], found[2]))
        position = found.end()
    return elements


def _element(quoted: str | None, plain: str) -> str | None:
    if quoted is not None:
        return _ESCAPED.sub(r"\1", quoted)
    return None if plain == "NULL" else plain
