"""What `GET /metrics` of an instance tells. The control plane has its own, of the same names, for what it proxied."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from paddock.graphs.ends import outcome
from paddock.graphs.instance import Instance
from paddock.graphs.query import Query

SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 1800)


class Metrics:
    def __init__(self, instance: Instance) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus-client left it without types
        self._registry = CollectorRegistry()
        self._queries = Counter(
            "paddock_instance_queries", "Queries that ended, by how.", ["outcome"], registry=self._registry
        )
        self._seconds = Histogram(
            "paddock_instance_query_seconds",
            "From the question to the end of its answer.",
            buckets=SECONDS,
            registry=self._registry,
        )
        self._restarts = Counter(
            "paddock_instance_engine_restarts",
            "Engine children that were replaced.",
            ["reason"],
            registry=self._registry,
        )
        instance.engines.when_restarted(lambda reason: self._restarts.labels(reason).inc())
        for name, about, value in (
            ("in_flight", "Queries that run.", lambda: instance.queries.in_flight),
            ("queued", "Queries that wait.", lambda: instance.queries.queued),
            ("memory_bytes", "Resident memory of all processes.", instance.family.memory_bytes),
            ("database_bytes", "Size of the database.", instance.database_bytes),
            ("ready", "1 when it takes queries.", lambda: float(instance.phase == "ready")),
        ):
            Gauge(f"paddock_instance_{name}", about, registry=self._registry).set_function(value)
        instance.queries.when_ended(self._count)

    def _count(self, query: Query, seconds: float) -> None:
        self._queries.labels(outcome(query)).inc()
        self._seconds.observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)
