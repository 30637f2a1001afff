"""`paddock instances algo` against a running graph."""

import pytest

from tests.cli.conftest import Terminal

pytestmark = pytest.mark.slow


def test_without_a_name_they_are_listed(terminal: Terminal) -> None:
    assert {"pagerank", "wcc", "louvain", "shortest_path"} <= set(
        terminal("instances", "algo", "flights", "-o", "name").lines
    )


def test_a_result_becomes_a_property_that_queries_read(terminal: Terminal) -> None:
    words = ("instances", "algo", "flights", "degree", "--edge-type", "ROUTE", "--param", "direction=outgoing")
    said = terminal(*words, "--write", "routes")
    assert said.code == 0, said.err
    assert ["Airport", "KFD", "1989"] in [line.split() for line in said.lines]
    assert "RETURN n.routes" in said.err
    read = terminal("instances", "query", "flights", "MATCH (a:Airport {code: 'KFD'}) RETURN a.routes", "-o", "json")
    assert read.json["rows"] == [[1989]]


def test_a_path_is_drawn(terminal: Terminal) -> None:
    words = ("instances", "algo", "flights", "shortest_path", "--param", "source=XHY", "--param", "target=WLJ")
    assert terminal(*words).out == "XHY -ROUTE-> KFD -ROUTE-> WLJ\n"
    assert terminal(*words, "-o", "json").json["hops"] == 2


def test_what_makes_no_sense_is_refused(terminal: Terminal) -> None:
    assert terminal("instances", "algo", "flights", "magic").code == 2
    wrong = terminal("instances", "algo", "flights", "pagerank", "--param", "damping=7")
    assert wrong.code == 2
    assert "damping" in wrong.err
    taken = terminal("instances", "algo", "flights", "degree", "--write", "city")
    assert taken.code == 4
    assert "city" in taken.err
