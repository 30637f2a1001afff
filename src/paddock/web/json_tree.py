"""JSON as a person unfolds it: nested <details>, without a script.

The text of the whole tree is again the JSON itself, so copying it copies what is there (copy.js relies on that).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from markupsafe import Markup, escape

from paddock.api.pagination import encode

# Above that a tree is slow to draw and nobody unfolds it: it is shown as plain text.
MOST_BYTES = 64 * 1024
OPEN_DEPTH = 2


def json_tree(value: Any) -> Markup:
    content = encode(value)
    if len(content) > MOST_BYTES:
        plain = orjson.dumps(orjson.loads(content), option=orjson.OPT_INDENT_2).decode()
        # It scrolls, so the keyboard must reach it; a tree is reached by its folds.
        return Markup('<div class="json plain"><div tabindex="0">{}</div></div>').format(plain)
    return Markup(f'<div class="json"><div>{"".join(_drawn(orjson.loads(content), 0, ""))}</div></div>')  # noqa: S704  escaped below


def _drawn(value: Any, depth: int, after: str) -> Iterator[str]:
    """`after` is the comma to the next item, which belongs behind the closing bracket."""
    if isinstance(value, Mapping) and value:
        yield from _folded("{", "}", [(escape(_text(key)), inner) for key, inner in value.items()], depth, after)
    elif isinstance(value, list) and value:
        yield from _folded("[", "]", [(None, inner) for inner in value], depth, after)
    else:
        yield f'<span class="{_class(value)}">{escape(_text(value))}</span>{after}'


def _folded(opens: str, closes: str, items: list[tuple[Markup | None, Any]], depth: int, after: str) -> Iterator[str]:
    count = f"{len(items)} {'item' if opens == '[' else 'field'}{'' if len(items) == 1 else 's'}"
    unfolded = " open" if depth < OPEN_DEPTH and len(items) <= 100 else ""
    yield f'<details{unfolded}><summary data-count="{count}">{opens}</summary><div class="inside">'
    for place, (key, inner) in enumerate(items):
        yield "<div>" if key is None else f'<div><span class="key">{key}</span>: '
        yield from _drawn(inner, depth + 1, "" if place == len(items) - 1 else ",")
        yield "</div>"
    yield f"</div>{closes}{after}</details>"


def _text(value: Any) -> str:
    return orjson.dumps(value).decode()


def _class(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else "word"
