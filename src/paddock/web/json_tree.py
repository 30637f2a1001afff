"""JSON as a person unfolds it: nested <details>, without a script.

An id or a name that names something leads there. The text of the whole tree is again the JSON itself, so copying it copies what is there (copy.js relies on that).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson
from markupsafe import Markup, escape

from paddock.api.pagination import encode
from paddock.web.places import place_of_field

# Above that a tree is slow to draw and nobody unfolds it: it is shown as plain text.
MOST_BYTES = 64 * 1024
OPEN_DEPTH = 2


# The address of a path of ours, as a page has it.
Address = Callable[[str], str]


def json_tree(value: Any, address: Address = str) -> Markup:
    content = encode(value)
    if len(content) > MOST_BYTES:
        plain = orjson.dumps(orjson.loads(content), option=orjson.OPT_INDENT_2).decode()
        # It scrolls, so the keyboard must reach it; a tree is reached by its folds.
        return Markup('<div class="json plain"><div tabindex="0">{}</div></div>').format(plain)
    return Markup(f'<div class="json"><div>{"".join(_drawn(orjson.loads(content), 0, "", "", address))}</div></div>')  # noqa: S704  escaped below


def _drawn(value: Any, depth: int, after: str, name: str, address: Address) -> Iterator[str]:
    """`after` is the comma to the next item, which belongs behind the closing bracket; `name` is the field it stands in."""
    if isinstance(value, Mapping) and value:
        items = list(value.items())
        yield from _folded("{", "}", items, depth, after, name, address)
    elif isinstance(value, list) and value:
        yield from _folded("[", "]", [(None, inner) for inner in value], depth, after, name, address)
    else:
        text = escape(_text(value))
        place = place_of_field(name, value) if isinstance(value, str) else None
        drawn = text if place is None else f'<a href="{escape(address(place))}">{text}</a>'
        yield f'<span class="{_class(value)}">{drawn}</span>{after}'


def _folded(
    opens: str,
    closes: str,
    items: Sequence[tuple[str | None, Any]],
    depth: int,
    after: str,
    name: str,
    address: Address,
) -> Iterator[str]:
    count = f"{len(items)} {'item' if opens == '[' else 'field'}{'' if len(items) == 1 else 's'}"
    unfolded = " open" if depth < OPEN_DEPTH and len(items) <= 100 else ""
    yield f'<details{unfolded}><summary data-count="{count}">{opens}</summary><div class="inside">'
    for place, (key, inner) in enumerate(items):
        yield "<div>" if key is None else f'<div><span class="key">{escape(_text(key))}</span>: '
        comma = "" if place == len(items) - 1 else ","
        yield from _drawn(inner, depth + 1, comma, name if key is None else key, address)
        yield "</div>"
    yield f"</div>{closes}{after}</details>"


def _text(value: Any) -> str:
    return orjson.dumps(value).decode()


def _class(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else "word"
