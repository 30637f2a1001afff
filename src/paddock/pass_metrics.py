"""The metrics of background jobs, and of what they are the net under: every name and label, in one place.

Only `paddock serve` exports them: they are registered when they are first asked for, and nothing in a worker asks. Counters
are of the process that did it and begin at 0 with all of their labels, because a counter that is born at 1 never rises.
What the database tells is a gauge without a value until it was first read.
"""

from collections.abc import Iterator, Sequence
from functools import cache

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from paddock.metrics import Labelled

JOBS = (
    "reconciliation",
    "lifecycle",
    "export_reconciliation",
    "schema_cache",
    "instance_orchestration",
    "resource_monitor",
)
PASS_BUCKETS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
LAG_BUCKETS = (1, 5, 15, 60, 300, 600, 1800, 3600, 14400, 86400)
RESOURCE_TYPES = ("instance", "snapshot", "mapping", "export", "dump")


class AbsentGauge(Collector):
    """A gauge without labels that has no series until it was set: an unknown number is not 0."""

    def __init__(self, name: str, text: str, registry: CollectorRegistry) -> None:
        self._name, self._text = name, text
        self._labelnames: tuple[str, ...] = ()
        self.value: float | None = None
        registry.register(self)

    def set(self, value: float | None) -> None:
        self.value = value

    def describe(self) -> list[GaugeMetricFamily]:
        return [GaugeMetricFamily(self._name, self._text)]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if self.value is not None:
            yield GaugeMetricFamily(self._name, self._text, value=self.value)


class PassMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._every_job()
        self._reconciliation()
        self._lifecycle()
        self._export_reconciliation()
        self._schema_cache()
        self._instance_orchestration()
        self._resource_monitor()

    def _every_job(self) -> None:
        both = [(job, status) for job in JOBS for status in ("success", "failed")]
        each = [(job,) for job in JOBS]
        self.executions = self._counters(
            "background_job_execution_total", "Passes of background jobs.", ("job_name", "status"), both
        )
        self.execution_seconds = self._histograms(
            "background_job_execution_duration_seconds", "Time of one pass.", ("job_name",), each, PASS_BUCKETS
        )
        self.last_success = self._gauges(
            "background_job_last_success_timestamp_seconds", "When a pass last succeeded.", "job_name"
        )
        self.health = self._gauges("background_job_health_status", "0 after 3 failures in a row, else 1.", "job_name")
        self.interval = self._gauges(
            "background_job_interval_seconds", "How far passes are apart; 0: switched off.", "job_name"
        )

    def _reconciliation(self) -> None:
        self.reconciliation_passes = self._counter("reconciliation_passes_total", "Passes of reconciliation.")
        self.reconciliation_seconds = self._histogram(
            "reconciliation_pass_duration_seconds", "Time of a pass of reconciliation.", PASS_BUCKETS
        )
        self.orphans_detected = self._counter("orphaned_pods_detected_total", "Pods that no instance names.")
        self.orphans_cleaned = self._counter("orphaned_pods_cleaned_total", "Orphaned pods deleted.")
        self.orphan_failures = self._counter(
            "orphaned_pods_cleanup_failures_total", "Orphaned pods that could not be deleted."
        )
        self.missing_detected = self._counter("missing_pods_detected_total", "Instances whose pod is gone.")
        self.missing_handled = self._counter("missing_pods_handled_total", "Instances without a pod that were ended.")
        self.drift_detected = self._counter("status_drift_detected_total", "Pods that ended under their instance.")
        self.drift_fixed = self._counter("status_drift_fixed_total", "Instances that follow their pod's end now.")
        self.orphans_current = self._absent(
            "orphaned_pods_detected_current", "Orphaned pods that the last pass found, before cleaning."
        )
        self.without_pod_name = self._absent(
            "instances_without_pod_name", "Instances starting or running without a pod's name: 0 by design."
        )
        self.reconciliation_skipped = self._counters(
            "reconciliation_skipped_total",
            "What reconciliation left alone, and why.",
            ("reason",),
            [(reason,) for reason in ("too_many", "young", "busy", "uncertain", "not_ready")],
        )

    def _lifecycle(self) -> None:
        self.lifecycle_passes = self._counter("lifecycle_passes_total", "Passes of lifecycle.")
        self.lifecycle_seconds = self._histogram(
            "lifecycle_pass_duration_seconds", "Time of a pass of lifecycle.", PASS_BUCKETS
        )
        self.ttl_ended = {
            "instance": self._counter("ttl_instances_terminated_total", "Instances ended by their TTL."),
            "snapshot": self._counter("ttl_snapshots_deleted_total", "Snapshots deleted by their TTL."),
            "mapping": self._counter("ttl_mappings_deleted_total", "Mappings deleted by their TTL."),
            "export": self._counter("ttl_exports_deleted_total", "Plain exports deleted by their TTL."),
            "dump": self._counter("ttl_dumps_deleted_total", "Dumps deleted by their age or number."),
        }
        self.inactive_ended = self._counter("inactive_instances_terminated_total", "Instances ended for idleness.")
        types = [(type,) for type in RESOURCE_TYPES]
        self.lifecycle_failures = self._counters(
            "lifecycle_termination_failures_total", "Ends that failed.", ("resource_type",), types
        )
        self.snapshot_cleanup_failures = self._counter(
            "snapshot_gcs_cleanup_failures_total", "Tries to delete a snapshot's files that failed, whatever the store."
        )
        self.lifecycle_skipped = self._counters(
            "lifecycle_skipped_total",
            "What lifecycle left for later, and why.",
            ("reason",),
            [("in_use",), ("unreachable",)],
        )
        self.enforcement_lag = self._histograms(
            "lifecycle_enforcement_lag_seconds",
            "From the expiry to the accepted end.",
            ("resource_type",),
            types,
            LAG_BUCKETS,
        )

    def _export_reconciliation(self) -> None:
        self.export_reconciliation_passes = self._counter(
            "export_reconciliation_passes_total", "Passes of export_reconciliation."
        )
        self.export_reconciliation_seconds = self._histogram(
            "export_reconciliation_pass_duration_seconds", "Time of a pass of export_reconciliation.", PASS_BUCKETS
        )
        self.stale_claims_detected = self._counter(
            "stale_export_claims_detected_total", "Export jobs whose worker died."
        )
        self.stale_claims_reset = self._counter("stale_export_claims_reset_total", "Those that were given back.")
        self.snapshots_unsettled = self._counter(
            "snapshots_ready_to_finalize_total", "Snapshots found ended and not settled: 0 by design."
        )
        self.snapshots_finalized = self._counter("snapshots_finalized_total", "Snapshots settled, on any path.")
        self.finalization_failures = self._counter(
            "snapshots_finalization_failures_total", "Tries to settle a snapshot that failed."
        )
        self.finalization_lag = self._histogram(
            "snapshot_finalization_lag_seconds", "From the end of the last job to the settled snapshot.", LAG_BUCKETS
        )
        self.export_queue_depth = self._absent("graph_olap_export_queue_depth", "Export jobs that are pending.")
        self.export_jobs = self._gauges(
            "export_jobs_by_status_total", "Export jobs live now, and ended in the last 24 h.", "status"
        )

    def _schema_cache(self) -> None:
        self.schema_refreshes = self._counters(
            "schema_cache_refreshes_total",
            "Refreshes of one engine's cache.",
            ("status",),
            [("success",), ("failed",), ("skipped",)],
        )
        self.schema_refresh_seconds = self._histogram(
            "schema_cache_refresh_duration_seconds", "Time of a refresh of one engine.", (*PASS_BUCKETS, 600, 3600)
        )
        self.schema_entries = self._gauges("schema_cache_entries_total", "What the cache holds.", "entity_type")
        self.schema_deleted = self._counter(
            "schema_cache_stale_entries_deleted_total", "Entries deleted because the engine no longer has them."
        )

    def _instance_orchestration(self) -> None:
        self.instance_orchestration_passes = self._counter(
            "instance_orchestration_passes_total", "Passes of instance_orchestration."
        )
        self.instance_orchestration_seconds = self._histogram(
            "instance_orchestration_pass_duration_seconds", "Time of a pass of instance_orchestration.", PASS_BUCKETS
        )
        self.to_starting = self._counter(
            "instances_transitioned_to_starting_total", "Waiting instances that were started, on any path."
        )
        self.to_failed = self._counter(
            "instances_transitioned_to_failed_total", "Waiting instances that failed, on any path."
        )

    def _resource_monitor(self) -> None:
        self.resource_monitor_passes = self._counter("resource_monitor_passes_total", "Passes of resource_monitor.")
        self.resource_monitor_seconds = self._histogram(
            "resource_monitor_pass_duration_seconds", "Time of a pass of resource_monitor.", PASS_BUCKETS
        )
        self.proactive_resizes = self._counter(
            "resource_monitor_proactive_resizes_total", "Instances grown because they were over 80 % for 2 min."
        )
        self.urgent_resizes = self._counter(
            "resource_monitor_urgent_resizes_total", "Instances grown because they were over 90 % for 1 min."
        )
        self.resource_monitor_failures = self._counter(
            "resource_monitor_failures_total", "Instances that could not be looked at or grown."
        )

    def passed(self, job: str) -> tuple[Counter, Histogram] | None:
        """The counter and the histogram of a job's own passes; schema_cache has them per engine instead."""
        if job == "schema_cache":
            return None
        return getattr(self, f"{job}_passes"), getattr(self, f"{job}_seconds")

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self._registry)

    def _counters(
        self, name: str, text: str, labels: Sequence[str], children: Sequence[tuple[str, ...]]
    ) -> Labelled[Counter]:
        made = Labelled(Counter(name, text, labels, registry=self._registry))
        for values in children:
            made(*values)
        return made

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, registry=self._registry, buckets=buckets)

    def _histograms(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        children: Sequence[tuple[str, ...]],
        buckets: tuple[float, ...],
    ) -> Labelled[Histogram]:
        made = Labelled(Histogram(name, text, labels, registry=self._registry, buckets=buckets))
        for values in children:
            made(*values)
        return made

    def _absent(self, name: str, text: str) -> AbsentGauge:
        return AbsentGauge(name, text, self._registry)

    def _gauges(self, name: str, text: str, *labels: str) -> Labelled[Gauge]:
        return Labelled(Gauge(name, text, labels, registry=self._registry))


@cache
def pass_metrics() -> PassMetrics:
    """Those of this process."""
    return PassMetrics(REGISTRY)
