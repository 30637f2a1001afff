import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from paddock.metrics import Labelled, Metrics, count_all, show_all

PROMISED = {
    "graph_olap_database_connections": {"state"},
    "paddock_instance_engine_restarts_total": {"reason"},
    "paddock_instance_queries_total": {"outcome"},
    "paddock_instance_query_seconds": set(),
    "paddock_instance_start_seconds": set(),
    "paddock_instances_started_total": {"outcome", "wrapper_type"},
    "paddock_claims_total": {"kind"},
    "paddock_claim_batch_size": set(),
    "paddock_finishes_total": {"kind", "outcome"},
    "paddock_verdicts_total": {"operation", "verdict"},
    "paddock_stale_writes_total": {"kind"},
    "paddock_queue_depth": {"kind", "status"},
    "paddock_oldest_due_age_seconds": {"kind"},
    "paddock_handler_seconds": {"kind", "outcome"},
    "paddock_heartbeat_lag_seconds": set(),
    "paddock_wakeup_latency_seconds": set(),
    "paddock_rescued_total": {"kind", "reason"},
    "paddock_jobs_enqueued_total": {"kind"},
    "paddock_kind_unoffered": {"kind"},
    "paddock_http_requests_total": {"route", "method", "status"},
    "paddock_http_seconds": {"route"},
    "paddock_pool_connections": {"pool", "state"},
    "paddock_log_bytes_dropped_total": set(),
    "paddock_events_total": {"type"},
    "paddock_streams": set(),
    "paddock_maintenance_actions_total": {"catalog", "action", "outcome"},
    "paddock_maintenance_bytes_total": {"catalog", "what"},
    "paddock_tables": {"catalog", "health"},
    "paddock_tables_seen_timestamp_seconds": {"catalog"},
}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_every_promised_metric_is_exported_with_its_labels(metrics: Metrics) -> None:
    for labelled in vars(metrics).values():
        if isinstance(labelled, Labelled):
            labelled(*["x"] * len(labelled.metric._labelnames))
    text, content_type = metrics.render()

    exported = {
        (f"{family.name}_total" if family.type == "counter" else family.name): {
            label for sample in family.samples for label in sample.labels if label != "le"
        }
        for family in text_string_to_metric_families(text.decode())
    }
    assert exported == PROMISED
    assert content_type.startswith("text/plain")


def test_a_batch_is_counted_in_bulk(metrics: Metrics) -> None:
    count_all(metrics.finishes, [("export", "done")] * 3 + [("dump", "again")])
    metrics.claims("export").inc(12)

    assert value(metrics, "paddock_finishes_total", kind="export", outcome="done") == 3
    assert value(metrics, "paddock_finishes_total", kind="dump", outcome="again") == 1
    assert value(metrics, "paddock_claims_total", kind="export") == 12


def test_children_are_kept(metrics: Metrics) -> None:
    assert metrics.claims("export") is metrics.claims("export")


def test_labels_are_bounded(metrics: Metrics) -> None:
    bounded = Labelled(metrics.claims.metric, most=2)

    for kind in ("a", "b", "c", "d"):
        bounded(kind).inc()

    assert value(metrics, "paddock_claims_total", kind="other") == 2
    assert value(metrics, "paddock_claims_total", kind="c") is None
    assert len(bounded.known()) == 3


def test_a_figure_that_is_gone_is_not_shown_any_more(metrics: Metrics) -> None:
    show_all(metrics.queue_depth, {("export", "pending"): 5, ("dump", "pending"): 1})
    show_all(metrics.queue_depth, {("export", "pending"): 4})

    assert value(metrics, "paddock_queue_depth", kind="export", status="pending") == 4
    assert value(metrics, "paddock_queue_depth", kind="dump", status="pending") is None


def test_a_method_made_up_by_a_caller_makes_no_series(metrics: Metrics) -> None:
    metrics.answered("/api/jobs/{id}", "GET", 200, 0.01)
    metrics.answered("/api/jobs/{id}", "BREW", 405, 0.01)

    route = "/api/jobs/{id}"
    assert value(metrics, "paddock_http_requests_total", route=route, method="OTHER", status="405") == 1
    assert value(metrics, "paddock_http_seconds_count", route=route) == 2
