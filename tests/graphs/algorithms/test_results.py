"""What an algorithm computes is what a plain reference computes, whatever the graph looks like."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.graphs.algorithms.arrays import Graph
from paddock.graphs.algorithms.betweenness import betweenness
from paddock.graphs.algorithms.communities import label_propagation, louvain
from paddock.graphs.algorithms.components import scc, wcc
from paddock.graphs.algorithms.density import kcore, triangle_count
from paddock.graphs.algorithms.ranking import degree, pagerank
from paddock.graphs.algorithms.running import Run
from paddock.graphs.algorithms.table import ALGORITHMS
from tests.graphs.algorithms import references

Pairs = Sequence[tuple[int, int]]
Drawn = tuple[int, Pairs, Sequence[float]]


def graph_of(nodes: int, pairs: Pairs, weights: Sequence[float] | None = None) -> Graph:
    source = np.array([source for source, _ in pairs], np.int64)
    target = np.array([target for _, target in pairs], np.int64)
    return Graph(nodes, source, target, None if weights is None else np.array(weights, np.float64))


def run(name: str, **given: Any) -> Run:
    defaults = {parameter.name: parameter.default for parameter in ALGORITHMS[name].parameters}
    return Run({**defaults, **given})


@st.composite
def graphs(draw: st.DrawFn) -> Drawn:
    """Up to twelve nodes with loops, parallel edges, isolated nodes and weights of which some are 0."""
    nodes = draw(st.integers(1, 12))
    node = st.integers(0, nodes - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=30))
    weight = st.integers(0, 8).map(lambda quarter: quarter / 4)
    return nodes, pairs, draw(st.lists(weight, min_size=len(pairs), max_size=len(pairs)))


HAND_MADE: dict[str, tuple[int, Pairs]] = {
    "one node": (1, []),
    "one node with a loop": (1, [(0, 0)]),
    "nodes without edges": (4, []),
    "parallel edges": (2, [(0, 1), (0, 1), (0, 1)]),
    "there and back": (2, [(0, 1), (1, 0)]),
    "a path into a dangling node": (4, [(0, 1), (1, 2), (2, 3)]),
    "a ring": (5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]),
    "a star with loops": (5, [(0, 1), (0, 2), (0, 3), (0, 4), (0, 0), (4, 4)]),
    "two triangles and a bridge": (6, [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (2, 3)]),
}


@pytest.mark.parametrize(("nodes", "pairs"), HAND_MADE.values(), ids=HAND_MADE.keys())
def test_hand_made_graphs(nodes: int, pairs: Pairs) -> None:
    everything_as_the_references(nodes, pairs)


@given(graphs())
def test_random_graphs(drawn: Drawn) -> None:
    nodes, pairs, _weights = drawn
    everything_as_the_references(nodes, pairs)


def everything_as_the_references(nodes: int, pairs: Pairs) -> None:
    graph, ones = graph_of(nodes, pairs), [1.0] * len(pairs)
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]

    ranked = pagerank(graph, run("pagerank", tolerance=1e-15, max_iterations=60))
    expected = references.pagerank(nodes, pairs, ones, 0.85, ranked.figures["iterations"])
    assert ranked.values.tolist() == pytest.approx(expected)
    assert ranked.values.sum() == pytest.approx(1)
    assert references.groups(wcc(graph, run("wcc")).values.tolist()) == references.wcc(nodes, pairs)
    assert references.groups(scc(graph, run("scc")).values.tolist()) == references.scc(nodes, pairs)
    assert kcore(graph, run("kcore")).values.tolist() == references.kcore(nodes, pairs)
    triangles = triangle_count(graph, run("triangle_count"))
    assert triangles.values.tolist() == references.triangle_count(nodes, pairs)
    assert triangles.figures["triangles"] == sum(triangles.values) / 3
    exact = betweenness(graph, run("betweenness", samples=nodes))
    assert exact.values.tolist() == pytest.approx(references.betweenness(nodes, pairs, range(nodes)))
    for direction, ends in (("outgoing", sources), ("incoming", targets), ("both", sources + targets)):
        counted = degree(graph, run("degree", direction=direction))
        assert counted.values.tolist() == references.degree(nodes, ends, [1.0] * len(ends))


@given(graphs())
def test_weights_count_in_pagerank_and_degree(drawn: Drawn) -> None:
    nodes, pairs, weights = drawn
    graph = graph_of(nodes, pairs, weights)

    ranked = pagerank(graph, run("pagerank", tolerance=1e-15, max_iterations=60))
    expected = references.pagerank(nodes, pairs, weights, 0.85, ranked.figures["iterations"])
    assert ranked.values.tolist() == pytest.approx(expected)
    sums = degree(graph, run("degree", direction="incoming")).values.tolist()
    assert sums == pytest.approx(references.degree(nodes, [target for _, target in pairs], weights))


@given(graphs())
def test_louvain_is_worth_what_it_says_and_better_than_every_node_alone(drawn: Drawn) -> None:
    nodes, pairs, weights = drawn
    for used in (None, weights):
        answer = louvain(graph_of(nodes, pairs, used), run("louvain", seed=1))
        communities, counted = answer.values.tolist(), used or [1.0] * len(pairs)
        assert answer.figures["modularity"] == pytest.approx(references.modularity(communities, pairs, counted))
        alone = references.modularity(list(range(nodes)), pairs, counted)
        assert answer.figures["modularity"] >= alone - 1e-9
        assert answer.figures["communities"] == len(set(communities))


@given(graphs())
def test_no_community_reaches_beyond_its_component(drawn: Drawn) -> None:
    nodes, pairs, _weights = drawn
    components = references.wcc(nodes, pairs)
    for function, name in ((louvain, "louvain"), (label_propagation, "label_propagation")):
        found = references.groups(function(graph_of(nodes, pairs), run(name, seed=1)).values.tolist())
        assert all(any(community <= component for component in components) for community in found)


@given(graphs())
def test_label_propagation_ends_when_each_node_has_a_label_of_most_neighbours(drawn: Drawn) -> None:
    nodes, pairs, _weights = drawn
    pairs = [(source, target) for source, target in pairs if source != target]
    answer = label_propagation(graph_of(nodes, pairs), run("label_propagation", seed=1))
    communities = answer.values.tolist()
    for node in range(nodes):
        ends = [pair[1 - place] for pair in pairs for place in (0, 1) if pair[place] == node]
        around = Counter(communities[end] for end in ends)
        if ends and answer.figures["iterations"] < 100:
            assert around[communities[node]] == max(around.values())


def cliques(count: int, size: int) -> Pairs:
    inside = [(a, b) for a in range(size) for b in range(a)]
    return [(a + size * number, b + size * number) for number in range(count) for a, b in inside]


def test_communities_are_the_cliques_that_weak_bridges_connect() -> None:
    pairs = [*cliques(3, 6), (0, 6), (6, 12)]
    weights = [1.0] * (len(pairs) - 2) + [0.1, 0.1]
    wanted = {frozenset(range(first, first + 6)) for first in (0, 6, 12)}
    for function, name in ((louvain, "louvain"), (label_propagation, "label_propagation")):
        answer = function(graph_of(18, pairs, weights), run(name, seed=1))
        assert references.groups(answer.values.tolist()) == wanted
        assert answer.sizes is not None
        assert answer.sizes.tolist() == [6, 6, 6]


def test_a_higher_resolution_gives_more_communities() -> None:
    pairs = [*cliques(4, 4), (0, 4), (4, 8), (8, 12), (12, 0)]
    few = louvain(graph_of(16, pairs), run("louvain", seed=1, resolution=0.1)).figures["communities"]
    many = louvain(graph_of(16, pairs), run("louvain", seed=1, resolution=20.0)).figures["communities"]
    assert few < 4 < many


def test_the_same_seed_gives_the_same_communities() -> None:
    chance = np.random.default_rng(1)
    graph = Graph(500, chance.integers(0, 500, 2000), chance.integers(0, 500, 2000))
    first, second = (louvain(graph, run("louvain", seed=7)).values.tolist() for _ in range(2))
    assert first == second


@given(graphs(), st.integers(0, 5))
def test_sampled_betweenness_scales_up_what_the_sampled_nodes_see(drawn: Drawn, seed: int) -> None:
    nodes, pairs, _weights = drawn
    samples = max(1, nodes // 2)
    answer = betweenness(graph_of(nodes, pairs), run("betweenness", samples=samples, seed=seed))
    starts = range(nodes) if samples == nodes else np.random.default_rng(seed).choice(nodes, samples, replace=False)
    seen = references.betweenness(nodes, pairs, [int(start) for start in starts])
    assert answer.values.tolist() == pytest.approx([value * nodes / samples for value in seen])


def test_betweenness_counts_more_paths_than_a_double_holds() -> None:
    """A ladder of 1,100 diamonds has 2^1100 shortest paths from end to end."""
    pairs = []
    for number in range(1100):
        first = 3 * number
        pairs += [(first, first + 1), (first, first + 2), (first + 1, first + 3), (first + 2, first + 3)]
    values = betweenness(graph_of(3301, pairs), run("betweenness", samples=1, seed=3)).values
    assert np.isfinite(values).all()


def test_groups_are_numbered_by_size() -> None:
    answer = wcc(graph_of(6, [(1, 2), (2, 3), (4, 5)]), run("wcc"))
    assert answer.values.tolist() == [2, 0, 0, 0, 1, 1]
    assert answer.sizes is not None
    assert answer.sizes.tolist() == [3, 2, 1]


def test_pagerank_says_whether_it_converged() -> None:
    graph = graph_of(*HAND_MADE["a path into a dangling node"])
    assert pagerank(graph, run("pagerank", max_iterations=1)).figures == {"iterations": 1, "converged": False}
    assert pagerank(graph, run("pagerank")).figures["converged"] is True


@pytest.mark.parametrize("name", [name for name, entry in ALGORITHMS.items() if entry.function is not None])
def test_a_graph_without_nodes_has_an_answer_without_values(name: str) -> None:
    import importlib

    module, _, function = (ALGORITHMS[name].function or "").partition(":")
    answer = getattr(importlib.import_module(module), function)(graph_of(0, []), run(name))
    assert answer.values.tolist() == []
