"""`conn.algo`: algorithms over the whole graph, whose results become properties that queries read.

conn.algo.pagerank(write_property="rank")
conn.query_df("MATCH (a:Airport) RETURN a.code, a.rank ORDER BY a.rank DESC LIMIT 5")
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from paddock.client.errors import AlgorithmFailed, Execution
from paddock.client.naming import given
from paddock.client.waiting import until

if TYPE_CHECKING:
    from paddock.client.jobs import JobsClient

LOOK_SECONDS = 0.3
ENDED = ("completed", "failed", "cancelled")

Answer = dict[str, Any]


class Algorithms:
    """Each waits for its end and answers its result: nodes, property, seconds, figures, the 20 largest. Options of all:
    node_labels, edge_types, weight_property, write_property, timeout_ms."""

    def __init__(self, client: "JobsClient", path: str) -> None:
        self._client = client
        self._path = f"{path}/algo"

    def pagerank(
        self,
        *,
        damping: float | None = None,
        max_iterations: int | None = None,
        tolerance: float | None = None,
        **options: Any,
    ) -> Answer:
        """Who is pointed at by those who are pointed at."""
        return self.run("pagerank", damping=damping, max_iterations=max_iterations, tolerance=tolerance, **options)

    def wcc(self, **options: Any) -> Answer:
        """What hangs together, whatever the direction."""
        return self.run("wcc", **options)

    def scc(self, **options: Any) -> Answer:
        """From where one gets everywhere within the same component, and back."""
        return self.run("scc", **options)

    def louvain(self, *, resolution: float | None = None, **options: Any) -> Answer:
        """Communities: more edges inside than chance would have."""
        return self.run("louvain", resolution=resolution, **options)

    def label_propagation(self, **options: Any) -> Answer:
        """Communities too, faster and coarser."""
        return self.run("label_propagation", **options)

    def kcore(self, **options: Any) -> Answer:
        """How deep inside the dense part a node sits."""
        return self.run("kcore", **options)

    def triangle_count(self, **options: Any) -> Answer:
        """In how many triangles a node is."""
        return self.run("triangle_count", **options)

    def betweenness(self, *, samples: int | None = None, **options: Any) -> Answer:
        """Through whom the shortest paths go, estimated from `samples` nodes."""
        return self.run("betweenness", samples=samples, **options)

    def degree(self, **options: Any) -> Answer:
        """How many edges a node has."""
        return self.run("degree", **options)

    def shortest_path(
        self,
        source: Any,
        target: Any,
        *,
        edge_types: Sequence[str] | None = None,
        max_hops: int | None = None,
        **options: Any,
    ) -> Answer:
        """A query, which answers at once and writes nothing."""
        body = given(source=source, target=target, edge_types=edge_types, max_hops=max_hops, **options)
        return self._request_data("POST", "/shortest_path", body=body, changes_nothing=True)

    def run(
        self,
        name: str,
        *,
        timeout: float | None = None,
        on_progress: Callable[[Execution], None] | None = None,
        **parameters: Any,
    ) -> Answer:
        """Any algorithm that `list()` names. `AlgorithmFailed` with the reason; `NotFinished` after `timeout` seconds, and
        then it goes on in the instance."""
        ended = self.wait(self.start(name, **parameters), timeout, on_progress=on_progress)
        result: Answer = ended["result"]
        return result

    def start(self, name: str, **parameters: Any) -> Execution:
        """Begins it and returns at once; `wait` waits for its end."""
        path = f"/{quote(name, safe='')}"
        return self._request_data("POST", path, body=given(**parameters), idempotency_key=uuid4().hex)

    def wait(
        self,
        execution: str | Execution,
        timeout: float | None = None,
        *,
        on_progress: Callable[[Execution], None] | None = None,
    ) -> Execution:
        """The execution once it has completed."""
        id = execution if isinstance(execution, str) else str(execution["execution_id"])
        found = until(
            lambda _: {"id": id, **self.execution(id)},
            lambda one: one["status"] in ENDED,
            noun="execution",
            timeout=timeout,
            pause=LOOK_SECONDS,
            tell=on_progress,
        )
        if found["status"] != "completed":
            raise AlgorithmFailed(found)
        return found

    def list(self) -> Any:
        """All there are, with their parameters."""
        return self._client.request("GET", self._path)["data"]

    def execution(self, execution_id: str) -> Execution:
        return self._request_data("GET", f"/executions/{quote(execution_id, safe='')}")

    def executions(self, *, most: int | None = None) -> Iterator[Execution]:
        return self._client.pages(f"{self._path}/executions", most=most)

    def cancel(self, execution_id: str) -> None:
        self._client.request("POST", f"{self._path}/executions/{quote(execution_id, safe='')}/cancel")

    def _request_data(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._client.request(method, f"{self._path}{path}", **options)["data"]
        return found
