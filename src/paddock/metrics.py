"""Every metric Paddock exports, with its labels, in one place.

Label values come from small closed sets: registered kinds, route templates, verdicts. `Labelled` still keeps a bound
on them, so that a mistake elsewhere fills one series called `other` and not the memory of Prometheus.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Generic, TypeVar

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

MOST_CHILDREN = 1000
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

HANDLER_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)
LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCH_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

M = TypeVar("M", Counter, Gauge, Histogram)


class Labelled(Generic[M]):
    """A metric whose children are kept: `claims("export").inc(12)` costs one dictionary look-up."""

    def __init__(self, metric: M, most: int = MOST_CHILDREN) -> None:
        self.metric: M = metric
        self._most = most
        self._children: dict[tuple[str, ...], M] = {}

    def __call__(self, *values: str) -> M:
        child = self._children.get(values)
        if child is None:
            if len(self._children) >= self._most:
                values = ("other",) * len(values)
            child = self.metric.labels(*values)
            self._children[values] = child
        return child

    def drop(self, *values: str) -> None:
        if self._children.pop(values, None) is not None:
            self.metric.remove(*values)

    def known(self) -> list[tuple[str, ...]]:
        return list(self._children)


def count_all(counter: Labelled[Counter], items: Iterable[tuple[str, ...]]) -> None:
    """Counts a batch with one increment for each distinct set of labels."""
    for values, n in Tally(items).items():
        counter(*values).inc(n)


def show_all(gauge: Labelled[Gauge], figures: Mapping[tuple[str, ...], float]) -> None:
    """Shows exactly these figures: what is no longer there would otherwise keep its last value for ever."""
    for values in gauge.known():
        if values not in figures:
            gauge.drop(*values)
    for values, figure in figures.items():
        gauge(*values).set(figure)


class Metrics:
    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        # A `_created` series beside each counter and histogram, which nobody reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus-client left it without types
        self.registry = registry if registry is not None else REGISTRY
        self._jobs()
        self._control_plane()
        self._instances()
        self._maintenance()

    def _jobs(self) -> None:
        self.jobs_enqueued = self._counter("paddock_jobs_enqueued_total", "Jobs accepted.", "kind")
        self.claims = self._counter("paddock_claims_total", "Jobs handed to a worker.", "kind")
        self.claim_batch_size = Histogram(
            "paddock_claim_batch_size", "Jobs in one claim's answer.", registry=self.registry, buckets=BATCH_BUCKETS
        )
        self.finishes = self._counter("paddock_finishes_total", "Turns ended, by outcome.", "kind", "outcome")
        self.verdicts = self._counter("paddock_verdicts_total", "Fenced writes, by verdict.", "operation", "verdict")
        self.stale_writes = self._counter("paddock_stale_writes_total", "Writes the fence refused.", "kind")
        self.rescued = self._counter("paddock_rescued_total", "Jobs taken back from their worker.", "kind", "reason")
        self.queue_depth = self._gauge("paddock_queue_depth", "Live jobs.", "kind", "status")
        self.oldest_due_age = self._gauge("paddock_oldest_due_age_seconds", "Age of the oldest due job.", "kind")
        self.kind_unoffered = self._gauge("paddock_kind_unoffered", "1 when no live worker offers the kind.", "kind")
        self.handler_seconds = self._histogram(
            "paddock_handler_seconds", "Time a handler ran for one turn.", HANDLER_BUCKETS, "kind", "outcome"
        )
        self.heartbeat_lag = Histogram(
            "paddock_heartbeat_lag_seconds",
            "How late a beat was accepted.",
            registry=self.registry,
            buckets=LATENCY_BUCKETS,
        )
        self.wakeup_latency = Histogram(
            "paddock_wakeup_latency_seconds",
            "From a job being due to its claim by a waiting worker.",
            registry=self.registry,
            buckets=LATENCY_BUCKETS,
        )

    def _control_plane(self) -> None:
        self.http_requests = self._counter(
            "paddock_http_requests_total", "Requests answered.", "route", "method", "status"
        )
        self.http_seconds = self._histogram("paddock_http_seconds", "Time to answer.", LATENCY_BUCKETS, "route")
        self.pool_connections = self._gauge("paddock_pool_connections", "Database connections.", "pool", "state")
        self.database_connections = self._gauge(
            "graph_olap_database_connections", "Connections of both pools; total is how many there may be.", "state"
        )
        self.events = self._counter("paddock_events_total", "Events recorded.", "type")
        self.streams = Gauge("paddock_streams", "Open event streams.", registry=self.registry)
        self.log_bytes_dropped = Counter(
            "paddock_log_bytes_dropped_total", "Handlers' log bytes over the limit.", registry=self.registry
        )

    def _instances(self) -> None:
        self.instances_started = self._counter(
            "paddock_instances_started_total", "Starts of instances, by how they ended.", "wrapper_type", "outcome"
        )
        self.instance_start_seconds = Histogram(
            "paddock_instance_start_seconds",
            "From the start of an instance to its running.",
            registry=self.registry,
            buckets=HANDLER_BUCKETS,
        )
        self.instance_queries = self._counter("paddock_instance_queries_total", "Queries proxied.", "outcome")
        self.instance_query_seconds = Histogram(
            "paddock_instance_query_seconds",
            "From a query to the end of its answer.",
            registry=self.registry,
            buckets=LATENCY_BUCKETS,
        )
        self.instance_engine_restarts = self._counter(
            "paddock_instance_engine_restarts_total", "Graph engines that had to be restarted.", "reason"
        )

    def _maintenance(self) -> None:
        self.maintenance_actions = self._counter(
            "paddock_maintenance_actions_total", "Actions on tables that ended.", "catalog", "action", "outcome"
        )
        self.maintenance_bytes = self._counter(
            "paddock_maintenance_bytes_total", "Bytes of tables, rewritten or freed.", "catalog", "what"
        )
        self.tables = self._gauge("paddock_tables", "Tables that looks have seen.", "catalog", "health")
        self.tables_seen = self._gauge(
            "paddock_tables_seen_timestamp_seconds", "When the last whole round of looks ended.", "catalog"
        )

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """`route` is the template. The method is the caller's own word, so an unknown one is `OTHER`."""
        self.http_requests(route, method if method in METHODS else "OTHER", str(status)).inc()
        self.http_seconds(route).observe(seconds)

    def render(self) -> tuple[bytes, str]:
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def _counter(self, name: str, text: str, *labels: str) -> Labelled[Counter]:
        return Labelled(Counter(name, text, labels, registry=self.registry))

    def _gauge(self, name: str, text: str, *labels: str) -> Labelled[Gauge]:
        return Labelled(Gauge(name, text, labels, registry=self.registry))

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Labelled[Histogram]:
        return Labelled(Histogram(name, text, labels, registry=self.registry, buckets=buckets))


@cache
def default() -> Metrics:
    """The process's own metrics, in prometheus-client's default registry (which also holds CPU and memory)."""
    return Metrics()


def render() -> tuple[bytes, str]:
    return default().render()
