"""The algorithms once more, as plainly as they can be written: lists, dicts and loops. Only for small graphs."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

Pairs = Sequence[tuple[int, int]]


def pagerank(nodes: int, pairs: Pairs, weights: Sequence[float], damping: float, rounds: int) -> list[float]:
    out: dict[int, float] = defaultdict(float)
    for (source, _target), weight in zip(pairs, weights, strict=True):
        out[source] += weight
    rank = [1 / nodes] * nodes
    for _ in range(rounds):
        lost = sum(rank[node] for node in range(nodes) if out[node] == 0)
        following = [(1 - damping) / nodes + damping * lost / nodes] * nodes
        for (source, target), weight in zip(pairs, weights, strict=True):
            if out[source] > 0:
                following[target] += damping * rank[source] * weight / out[source]
        rank = following
    return rank


def reached(nodes: int, pairs: Pairs) -> list[set[int]]:
    """For each node those it can reach, itself among them."""
    found = [{node} for node in range(nodes)]
    changed = True
    while changed:
        changed = False
        for source, target in pairs:
            for ways in found:
                if source in ways and target not in ways:
                    ways.add(target)
                    changed = True
    return found


def wcc(nodes: int, pairs: Pairs) -> set[frozenset[int]]:
    return scc(nodes, [*pairs, *((target, source) for source, target in pairs)])


def scc(nodes: int, pairs: Pairs) -> set[frozenset[int]]:
    ways = reached(nodes, pairs)
    return {frozenset(other for other in ways[node] if node in ways[other]) for node in range(nodes)}


def neighbours(nodes: int, pairs: Pairs) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(nodes)]
    for source, target in pairs:
        if source != target:
            found[source].add(target)
            found[target].add(source)
    return found


def kcore(nodes: int, pairs: Pairs) -> list[int]:
    around = neighbours(nodes, pairs)
    cores = [0] * nodes
    for k in range(1, nodes):
        left = set(range(nodes))
        while weak := [node for node in left if len(around[node] & left) < k]:
            left -= set(weak)
        for node in left:
            cores[node] = k
    return cores


def triangle_count(nodes: int, pairs: Pairs) -> list[int]:
    around = neighbours(nodes, pairs)
    return [sum(b in around[a] for a, b in combinations(sorted(around[node]), 2)) for node in range(nodes)]


def betweenness(nodes: int, pairs: Pairs, starts: Sequence[int]) -> list[float]:
    """All shortest paths are written out and counted."""
    outgoing: list[set[int]] = [set() for _ in range(nodes)]
    for source, target in pairs:
        if source != target:
            outgoing[source].add(target)
    through = [0.0] * nodes
    for start in starts:
        for paths in _shortest_paths(outgoing, start).values():
            for path in paths:
                for node in path[1:-1]:
                    through[node] += 1 / len(paths)
    return through


def _shortest_paths(outgoing: Sequence[set[int]], start: int) -> dict[int, list[list[int]]]:
    found: dict[int, list[list[int]]] = {start: [[start]]}
    last = found
    while last:
        longer: dict[int, list[list[int]]] = defaultdict(list)
        for node, paths in last.items():
            for following in outgoing[node] - found.keys():
                longer[following] += [[*path, following] for path in paths]
        found = {**found, **longer}
        last = longer
    return found


def degree(nodes: int, ends: Sequence[int], weights: Sequence[float]) -> list[float]:
    found = [0.0] * nodes
    for end, weight in zip(ends, weights, strict=True):
        found[end] += weight
    return found


def modularity(communities: Sequence[int], pairs: Pairs, weights: Sequence[float]) -> float:
    """Edges count in both directions. A loop adds its weight once inside, and twice to what its node has."""
    total = sum(weights)
    if total == 0:
        return 0.0
    inside: dict[int, float] = defaultdict(float)
    around: dict[int, float] = defaultdict(float)
    for (source, target), weight in zip(pairs, weights, strict=True):
        around[communities[source]] += weight
        around[communities[target]] += weight
        if communities[source] == communities[target]:
            inside[communities[source]] += weight
    return sum(inside[one] / total - (around[one] / (2 * total)) ** 2 for one in around)


def groups(values: Sequence[int]) -> set[frozenset[int]]:
    members: dict[int, set[int]] = defaultdict(set)
    for node, value in enumerate(values):
        members[value].add(node)
    return {frozenset(one) for one in members.values()}
