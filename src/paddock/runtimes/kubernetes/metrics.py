"""The metrics of this process's calls to the API server. Every child is there, at 0, from the start."""

from functools import cache

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from paddock.metrics import LATENCY_BUCKETS
from paddock.runtimes.kubernetes.categories import RULES

CALLS = {
    "get": ("pods", "pods/log", "jobs", "namespaces", "version"),
    "list": ("pods", "jobs", "events", "resourcequotas"),
    "watch": ("pods", "jobs"),
    "create": ("pods", "jobs", "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
    "delete": ("pods", "jobs"),
    "patch": ("pods/resize",),
}
# Of an answer; `none`: there was none.
CODES = (
    *("200", "201", "202", "400", "401", "403", "404", "409", "410", "422", "429", "500", "502", "503", "504"),
    *("none", "other"),
)
# Why what a namespace holds was listed anew: the time had come, the version was too old, the server said ERROR, the line broke.
RESTARTS = ("relist", "gone", "error", "broken")


class KubernetesMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "paddock_kubernetes_requests_total",
            "Requests to the API server, by how they were answered.",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self._seconds = Histogram(
            "paddock_kubernetes_request_seconds",
            "From a request to the end of its answer.",
            ["verb"],
            registry=registry,
            buckets=LATENCY_BUCKETS,
        )
        self._restarts = Counter(
            "paddock_kubernetes_watch_restarts_total",
            "How often a namespace was listed again for its watch.",
            ["reason"],
            registry=registry,
        )
        self.failures = Counter(
            "paddock_kubernetes_failures_total",
            "What failed on the cluster, by what it means.",
            ["category"],
            registry=registry,
        )
        for category in RULES:
            self.failures.labels(category)
        self.throttled_seconds = Counter(
            "paddock_kubernetes_throttled_seconds_total",
            "Seconds that calls waited for their turn, or creates were held back by the API server.",
            registry=registry,
        )
        for verb, resources in CALLS.items():
            if verb != "watch":
                self._seconds.labels(verb)
            for resource in resources:
                for code in CODES:
                    self._requests.labels(verb, resource, code)
        for reason in RESTARTS:
            self._restarts.labels(reason)

    def answered(self, verb: str, resource: str, code: int | None, seconds: float) -> None:
        known = resource if resource in CALLS[verb] else "other"
        shown = "none" if code is None else str(code)
        self._requests.labels(verb, known, shown if shown in CODES else "other").inc()
        if verb != "watch":
            self._seconds.labels(verb).observe(seconds)

    def restarted(self, reason: str) -> None:
        self._restarts.labels(reason).inc()


@cache
def kubernetes_metrics() -> KubernetesMetrics:
    return KubernetesMetrics(REGISTRY)
