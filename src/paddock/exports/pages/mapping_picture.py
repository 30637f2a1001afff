"""A mapping as a picture: its labels on a circle, its edge types as arrows between them. Only numbers are computed here; what
people wrote is escaped by the template that draws it."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paddock.exports.mapping import Definition

WIDTH = 640
RADIUS = 26
# How wide a letter of a name is at most, how far below its circle a label's name ends, and what stays free around all.
LETTER = 8
NAME_BELOW = 22
MARGIN = 16
# More than these cannot be told apart; the lists below the picture have them all.
MOST_LABELS = 24
MOST_EDGES = 60


@dataclass(frozen=True, slots=True)
class Label:
    """`field` is where the mapping says it."""

    name: str
    x: float
    y: float
    field: str


@dataclass(frozen=True, slots=True)
class Arrow:
    name: str
    # A quadratic curve, as the attribute `d` of a path.
    path: str
    # Where its name stands.
    x: float
    y: float
    field: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    # The part of the plane that shows all of it, names too.
    left: float
    top: float
    width: float
    height: float
    labels: Sequence[Label]
    arrows: Sequence[Arrow]
    text: str


def picture_of(definition: Definition, *, least_width: float = WIDTH) -> Picture:
    names = list(dict.fromkeys(node.label for node in definition.nodes))[:MOST_LABELS]
    places = dict(zip(names, _on_a_circle(len(names)), strict=True))
    drawn: Counter[frozenset[str]] = Counter()
    arrows = []
    for n, edge in enumerate(definition.edges[:MOST_EDGES]):
        if edge.from_node in places and edge.to_node in places:
            pair = frozenset((edge.from_node, edge.to_node))
            arrow = _arrow(edge.type, places[edge.from_node], places[edge.to_node], drawn[pair])
            arrows.append(replace(arrow, field=f"edges.{n}"))
            drawn[pair] += 1
    fields = {node.label: f"nodes.{n}" for n, node in reversed(list(enumerate(definition.nodes)))}
    labels = [Label(name, *places[name], fields[name]) for name in names]
    text = "; ".join(f"{edge.from_node} {edge.type} {edge.to_node}" for edge in definition.edges[:MOST_EDGES])
    return Picture(*_bounds(labels, arrows, least_width), labels, arrows, text or ", ".join(names))


def _on_a_circle(count: int) -> list[tuple[float, float]]:
    size = 0 if count == 1 else min(60 + 28 * count, 240)
    angles = [2 * math.pi * n / count for n in range(count)]
    return [(-1.25 * size * math.cos(angle), -size * math.sin(angle)) for angle in angles]


def _bounds(labels: Sequence[Label], arrows: Sequence[Arrow], least_width: float) -> tuple[float, float, float, float]:
    """Left, top, width and height. Few labels are not blown up: a picture has at least this width."""
    wide = [(one.x, max(RADIUS, LETTER * len(one.name) / 2)) for one in labels]
    wide += [(one.x, LETTER * len(one.name) / 2) for one in arrows]
    half = max([least_width / 2, *(abs(x) + width + MARGIN for x, width in wide)])
    top = min([-RADIUS, *(one.y - RADIUS for one in labels), *(one.y - LETTER for one in arrows)]) - MARGIN
    bottom = max([RADIUS, *(one.y + RADIUS + NAME_BELOW for one in labels), *(one.y for one in arrows)]) + MARGIN
    return -half, top, 2 * half, bottom - top


def _arrow(name: str, start: tuple[float, float], end: tuple[float, float], nth: int) -> Arrow:
    """Several between the same two bend more and more, to one side and the other, whichever way they point."""
    if start == end:
        x, y, size = start[0], start[1], 30 + 18 * nth
        path = f"M{x - 12:.1f} {y - RADIUS:.1f} C{x - size:.1f} {y - 2 * size:.1f} {x + size:.1f} {y - 2 * size:.1f} {x + 12:.1f} {y - RADIUS:.1f}"
        return Arrow(name, path, x, y - 1.5 * size - 8)
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy) or 1.0
    ux, uy = dx / length, dy / length
    side = 1 if (nth % 2 == 0) == (start < end) else -1
    bend = (18 + 26 * ((nth + 1) // 2)) * side
    middle = ((start[0] + end[0]) / 2 - uy * bend, (start[1] + end[1]) / 2 + ux * bend)
    first = (start[0] + ux * RADIUS, start[1] + uy * RADIUS)
    last = (end[0] - ux * (RADIUS + 6), end[1] - uy * (RADIUS + 6))
    path = f"M{first[0]:.1f} {first[1]:.1f} Q{middle[0]:.1f} {middle[1]:.1f} {last[0]:.1f} {last[1]:.1f}"
    return Arrow(name, path, (middle[0] + (start[0] + end[0]) / 2) / 2, (middle[1] + (start[1] + end[1]) / 2) / 2)
