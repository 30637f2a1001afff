"""The algorithms there are: one entry each, read by the server, the child that computes, and the documentation.

It is light on purpose: the server loads it, and the server loads neither numpy nor networkit. `function` therefore
names the function, as module:name; only the child that computes imports it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Value = int | float | str | None

SHORTEST_PATH = "shortest_path"
MAX_HOPS = 30
DEFAULT_TIMEOUT_MS = 30 * 60 * 1000
LONGEST_TIMEOUT_MS = 2 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Parameter:
    """One value that a request may name. A parameter without `least` and `most` has no range."""

    name: str
    type: Literal["integer", "number", "string", "list", "any"]
    description: str
    default: Value = None
    least: float | None = None
    most: float | None = None
    # Whether `least` itself is too small.
    above: bool = False
    choices: tuple[str, ...] = ()
    required: bool = False

    def as_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"name": self.name, "type": self.type, "description": self.description}
        if self.required:
            facts["required"] = True
        else:
            facts["default"] = self.default
        if self.least is not None:
            facts["exclusive_minimum" if self.above else "minimum"] = self.least
        if self.most is not None:
            facts["maximum"] = self.most
        if self.choices:
            facts["choices"] = list(self.choices)
        return facts


NODE_LABELS = Parameter(
    "node_labels",
    "list",
    "Labels whose nodes take part. Left out: those that `edge_types` connect, or all where these are left out too.",
)
EDGE_TYPES = Parameter(
    "edge_types", "list", "Edge types that count. Left out: all that connect two labels which take part."
)
WEIGHT = Parameter(
    "weight_property", "string", "A numeric property of the edges, not negative. Left out: each edge counts 1."
)
WRITE = Parameter(
    "write_property", "string", "The node property that the result becomes. Left out: the algorithm's name."
)
TIMEOUT = Parameter(
    "timeout_ms", "integer", "The execution fails after this time.", DEFAULT_TIMEOUT_MS, 1000, LONGEST_TIMEOUT_MS
)
SEED = Parameter(
    "seed", "integer", "With a seed one thread computes, and the same graph gives the same result.", None, 0, 2**31 - 1
)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """`type` is the type of the property, `weighted_type` that with weights; None: it takes no weights.

    `groups` is what the values number (components, communities); None: the values are scores of single nodes.
    One without `function` is a query: it is answered at once and becomes no property."""

    name: str
    title: str
    description: str
    function: str | None
    type: Literal["INT64", "DOUBLE"] | None
    parameters: tuple[Parameter, ...] = ()
    weighted_type: Literal["INT64", "DOUBLE"] | None = None
    groups: Literal["components", "communities"] | None = None

    def all_parameters(self) -> tuple[Parameter, ...]:
        if self.function is None:
            return self.parameters
        weight = (WEIGHT,) if self.weighted_type else ()
        return (*self.parameters, NODE_LABELS, EDGE_TYPES, *weight, WRITE, TIMEOUT)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "result_type": self.type,
            "parameters": [parameter.as_json() for parameter in self.all_parameters()],
        }


_MODULE = "paddock.graphs.algorithms"

_ENTRIES = (
    Algorithm(
        "pagerank",
        "PageRank",
        "How often somebody who follows edges at random comes by. The values of all nodes sum up to 1.",
        f"{_MODULE}.ranking:pagerank",
        "DOUBLE",
        (
            Parameter("damping", "number", "The chance to follow an edge instead of starting over.", 0.85, 0, 1),
            Parameter("max_iterations", "integer", "It ends after so many rounds at the latest.", 100, 1, 10_000),
            Parameter(
                "tolerance",
                "number",
                "It ends when the values of a round differ by less in sum.",
                1e-8,
                0,
                1,
                above=True,
            ),
        ),
        weighted_type="DOUBLE",
    ),
    Algorithm(
        "wcc",
        "Weakly connected components",
        "Which nodes hang together when the direction of edges does not count. Component 0 is the largest.",
        f"{_MODULE}.components:wcc",
        "INT64",
        groups="components",
    ),
    Algorithm(
        "louvain",
        "Louvain communities",
        "Groups with more edges inside than chance would give, by modularity. Edges count in both directions."
        " Community 0 is the largest.",
        f"{_MODULE}.communities:louvain",
        "INT64",
        (
            Parameter("resolution", "number", "Above 1 gives more and smaller communities.", 1.0, 0, 100, above=True),
            SEED,
        ),
        weighted_type="INT64",
        groups="communities",
    ),
    Algorithm(
        SHORTEST_PATH,
        "Shortest path",
        "A path of fewest edges from one node to another, along their direction. It is answered at once.",
        None,
        None,
        (
            Parameter("source", "any", 'The node to start from: its key, or {"label": …, "key": …}.', required=True),
            Parameter("target", "any", "The node to reach, written the same way.", required=True),
            EDGE_TYPES,
            Parameter("max_hops", "integer", "Longer paths are not looked for.", MAX_HOPS, 1, MAX_HOPS),
        ),
    ),
    Algorithm(
        "scc",
        "Strongly connected components",
        "Which nodes reach each other along the direction of edges. Component 0 is the largest.",
        f"{_MODULE}.components:scc",
        "INT64",
        groups="components",
    ),
    Algorithm(
        "kcore",
        "k-core",
        "The largest k for which the node is in a part of the graph where everybody has k neighbours.",
        f"{_MODULE}.density:kcore",
        "INT64",
    ),
    Algorithm(
        "label_propagation",
        "Label propagation",
        "Groups that form when each node takes the label that most of its neighbours have. Faster than Louvain and less"
        " stable. Community 0 is the largest.",
        f"{_MODULE}.communities:label_propagation",
        "INT64",
        (Parameter("max_iterations", "integer", "It ends after so many rounds at the latest.", 100, 1, 10_000), SEED),
        weighted_type="INT64",
        groups="communities",
    ),
    Algorithm(
        "triangle_count",
        "Triangles",
        "In how many triangles of neighbours the node is. Direction, loops and parallel edges do not count.",
        f"{_MODULE}.density:triangle_count",
        "INT64",
    ),
    Algorithm(
        "betweenness",
        "Betweenness",
        "Through which nodes the shortest paths of others lead, along the direction of edges, estimated from samples.",
        f"{_MODULE}.betweenness:betweenness",
        "DOUBLE",
        (
            Parameter(
                "samples",
                "integer",
                "From how many nodes paths are followed. As many as there are nodes or more: the exact value.",
                64,
                1,
                100_000,
            ),
            SEED,
        ),
    ),
    Algorithm(
        "degree",
        "Degree",
        "How many edges the node has, or the sum of their weights. A loop counts in each direction.",
        f"{_MODULE}.ranking:degree",
        "INT64",
        (
            Parameter(
                "direction", "string", "Which edges of a node count.", "both", choices=("both", "outgoing", "incoming")
            ),
        ),
        weighted_type="DOUBLE",
    ),
)

ALGORITHMS: Mapping[str, Algorithm] = {algorithm.name: algorithm for algorithm in _ENTRIES}
