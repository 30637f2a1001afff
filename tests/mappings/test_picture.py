"""A mapping is drawn from its labels and edge types alone, each where it can be read."""

import re
from itertools import pairwise

import pytest

from paddock.exports.mapping import Definition, Edge, Key, Node
from paddock.exports.pages.mapping_picture import MOST_EDGES, MOST_LABELS, RADIUS, Picture, picture_of
from paddock.web.frame import templates

HOSTILE = '"><script>alert(1)</script>'


def mapping(labels: list[str], *edges: tuple[str, str, str]) -> Definition:
    key = Key(name="id", type="INT64")
    nodes = [Node(label=label, sql="SELECT 1", primary_key=key) for label in labels]
    made = [
        Edge(type=type, from_node=start, to_node=end, sql="SELECT 1, 2", from_key="a", to_key="b")
        for start, type, end in edges
    ]
    return Definition(nodes=nodes, edges=made)


def inside(picture: Picture) -> bool:
    numbers = [[float(text) for text in re.findall(r"-?[\d.]+", arrow.path)] for arrow in picture.arrows]
    places = [(label.x + side, label.y + RADIUS) for label in picture.labels for side in (-RADIUS, RADIUS)]
    places += [(arrow.x, arrow.y) for arrow in picture.arrows]
    places += [(path[n], path[n + 1]) for path in numbers for n in (0, len(path) - 2)]
    right, bottom = picture.left + picture.width, picture.top + picture.height
    return all(picture.left <= x <= right and picture.top <= y <= bottom for x, y in places)


def test_one_label_stands_in_the_middle() -> None:
    picture = picture_of(mapping(["Person"]))
    [label] = picture.labels
    assert (label.name, label.x) == ("Person", picture.left + picture.width / 2)
    assert (picture.arrows, picture.text) == ([], "Person")
    assert inside(picture)


def test_edge_types_between_the_same_two_labels_are_apart() -> None:
    picture = picture_of(
        mapping(["A", "B"], ("A", "ONE", "B"), ("A", "TWO", "B"), ("B", "THREE", "A"), ("A", "FOUR", "B"))
    )
    assert [arrow.name for arrow in picture.arrows] == ["ONE", "TWO", "THREE", "FOUR"]
    assert len({arrow.path for arrow in picture.arrows}) == 4
    heights = sorted(arrow.y for arrow in picture.arrows)
    assert all(below - above > 8 for above, below in pairwise(heights)), "their names can be told apart"
    assert inside(picture)


def test_an_edge_type_from_a_label_to_itself_is_a_loop_above_it() -> None:
    picture = picture_of(mapping(["A"], ("A", "KNOWS", "A"), ("A", "LIKES", "A")))
    [label] = picture.labels
    first, second = picture.arrows
    assert first.path != second.path
    assert second.y < first.y < label.y - RADIUS
    assert inside(picture)


@pytest.mark.parametrize("count", [2, 3, 5, 12, 24])
def test_labels_do_not_touch_each_other_and_stay_inside(count: int) -> None:
    names = [f"L{n}" for n in range(count)]
    loops = [(name, f"R{n}", name) for n, name in enumerate(names)]
    picture = picture_of(
        mapping(names, *loops, *((one, f"TO{n}", two) for n, (one, two) in enumerate(pairwise(names))))
    )
    places = [(label.x, label.y) for label in picture.labels]
    for n, (x, y) in enumerate(places):
        assert all((x - a) ** 2 + (y - b) ** 2 > (2 * RADIUS) ** 2 for a, b in places[n + 1 :])
    assert inside(picture)


def test_of_many_labels_so_many_are_drawn_as_can_be_told_apart() -> None:
    names = [f"L{n}" for n in range(100)]
    picture = picture_of(mapping(names, *((names[0], f"R{n}", names[n]) for n in range(1, 100))))
    assert len(picture.labels) == MOST_LABELS
    assert len(picture.arrows) == MOST_LABELS - 1, "arrows to labels that are not drawn lead nowhere"
    many = picture_of(mapping(["A", "B"], *(("A", f"R{n}", "B") for n in range(300))))
    assert len(many.arrows) == MOST_EDGES


def test_an_edge_to_a_label_that_is_not_there_is_left_out() -> None:
    assert picture_of(mapping(["A"], ("A", "R", "Nobody"), ("Nobody", "S", "A"))).arrows == []


def test_a_mapping_without_labels_is_an_empty_picture() -> None:
    assert picture_of(mapping([])).labels == []


def test_names_are_escaped_where_they_are_drawn() -> None:
    picture = picture_of(mapping([HOSTILE, "B"], (HOSTILE, HOSTILE, "B")))
    template = templates().from_string("{{ ui.mapping_picture(picture) }}")
    drawn = template.render(picture=picture)
    assert "<script" not in drawn
    assert drawn.count("&gt;&lt;script&gt;") >= 3
