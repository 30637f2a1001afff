"""How a table is, and what would help it: one table of thresholds, one function. The API, the command line, the pages and
`maintenance_pass` all show what this says."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from paddock.amounts import several
from paddock.amounts import size as in_words
from paddock.maintenance.model import Action
from paddock.maintenance.policy import Policy

Health = Literal["healthy", "warning", "critical", "unknown"]
Severity = Literal["info", "warning", "critical"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """From `warning` on something is recommended, from `critical` on it is urgent."""

    warning: float
    critical: float


THRESHOLDS: Mapping[str, Threshold] = {
    # Small files that a rewrite would bring together.
    "small_files": Threshold(warning=20, critical=500),
    # Delete files for each data file, and in all.
    "delete_files": Threshold(warning=5, critical=500),
    "many_manifests": Threshold(warning=100, critical=1_000),
    # Snapshots that an expiry would take.
    "old_snapshots": Threshold(warning=20, critical=1_000),
    "large_metadata": Threshold(warning=10 << 20, critical=100 << 20),
}
SMALL_MANIFEST_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Issue:
    code: str
    severity: Severity
    evidence: str
    action: Action | None = None

    def json_object(self) -> dict[str, Any]:
        return {"code": self.code, "severity": self.severity, "evidence": self.evidence, "action": self.action}


@dataclass(frozen=True, slots=True)
class Recommendation:
    action: Action
    why: str

    def json_object(self) -> dict[str, Any]:
        return {"action": self.action, "why": self.why}


# Of foreign rewrites.
FOREIGN_DAYS = 7


def other_maintainer(rewrites: Sequence[Sequence[Any]]) -> str | None:
    """What it says of a table that somebody else rewrites; on one day is no habit."""
    days = {day for _, day in rewrites}
    return f"Rewritten by others on {len(days)} of the last {FOREIGN_DAYS} days." if len(days) >= 2 else None


def issues_of(figures: Mapping[str, Any], policy: Policy) -> list[Issue]:
    return [*_counted(figures, policy), *_noted(figures, policy)]


def _counted(figures: Mapping[str, Any], policy: Policy) -> Iterator[Issue]:
    rewritable, size = figures.get("rewritable_files", 0), figures.get("rewritable_bytes", 0)
    least = min(THRESHOLDS["small_files"].warning, policy["min_input_files"])
    if rewritable >= least:
        found = f"{several(rewritable, 'small file')} ({in_words(size)}) could become few."
        yield Issue("small_files", _severity("small_files", rewritable), found, "rewrite_data_files")
    deletes = figures.get("delete_files", 0)
    if deletes >= policy["delete_file_threshold"]:
        found = f"{deletes:,} delete files are read with every scan."
        helps = figures.get("foldable_delete_files", deletes) > 0
        if not helps:
            found += " No rewrite here takes them away: each file has few of them, they name rows by value, or no file needs them."
        yield Issue("delete_files", _severity("delete_files", deletes), found, "rewrite_data_files" if helps else None)
    manifests = figures.get("manifests", 0)
    average = figures.get("manifest_bytes", 0) / manifests if manifests else 0
    if manifests >= THRESHOLDS["many_manifests"].warning and average < SMALL_MANIFEST_BYTES:
        found = f"{several(manifests, 'manifest')} of {in_words(average)} on average are read to plan a scan."
        helps = figures.get("mergeable_manifests", manifests) > 0
        yield Issue(
            "many_manifests", _severity("many_manifests", manifests), found, "rewrite_manifests" if helps else None
        )
    old = figures.get("expirable_snapshots", 0)
    if old >= THRESHOLDS["old_snapshots"].warning:
        found = f"{old:,} snapshots are older than {policy['max_snapshot_age_days']:g} days."
        yield Issue("old_snapshots", _severity("old_snapshots", old), found, "expire_snapshots")
    metadata = figures.get("metadata_bytes", 0)
    if metadata >= THRESHOLDS["large_metadata"].warning:
        found = f"The metadata file has {in_words(metadata)}, and every commit writes it again."
        yield Issue("large_metadata", _severity("large_metadata", metadata), found, "expire_snapshots" if old else None)


def _noted(figures: Mapping[str, Any], policy: Policy) -> Iterator[Issue]:
    if figures.get("gc_disabled"):
        yield Issue("gc_disabled", "info", "gc.enabled is false: neither snapshots nor orphans are removed.")
    if figures.get("engine_cannot"):
        yield Issue("engine_cannot", "info", str(figures["engine_cannot"]))
    if figures.get("other_maintainer"):
        yield Issue("other_maintainer", "info", str(figures["other_maintainer"]))
    for problem in policy.problems.values():
        yield Issue("bad_property", "warning", problem)


def _severity(code: str, value: float) -> Severity:
    return "critical" if value >= THRESHOLDS[code].critical else "warning"


def health_of(issues: list[Issue], figures: Mapping[str, Any]) -> Health:
    if not figures:
        return "unknown"
    severities = {issue.severity for issue in issues}
    return "critical" if "critical" in severities else "warning" if "warning" in severities else "healthy"


def recommended(issues: list[Issue], figures: Mapping[str, Any], policy: Policy) -> list[Recommendation]:
    """What would help, without what cannot be done to this table."""
    found: dict[Action, str] = {}
    for issue in issues:
        impossible = (issue.action == "expire_snapshots" and figures.get("gc_disabled")) or (
            issue.action in ("rewrite_data_files", "rewrite_manifests") and figures.get("engine_cannot")
        )
        if issue.action is not None and not impossible:
            found.setdefault(issue.action, issue.evidence)
    if found and "expire_snapshots" not in found and "rewrite_data_files" in found and not figures.get("gc_disabled"):
        # Only an expiry frees what earlier rewrites left behind.
        found["expire_snapshots"] = "A rewrite frees no space until old snapshots go."
    return [Recommendation(action, why) for action, why in found.items()]


@dataclass(frozen=True, slots=True)
class Standing:
    """Of one table, for the question whether it is maintained now."""

    enabled: bool
    enabled_source: str
    database_listed: bool
    recommended: tuple[str, ...]
    other_maintainer: bool
    problem: str | None
    cadence: timedelta
    maintained_at: datetime | None
    failures: int
    is_live: bool
    # None where who asks may not see it.
    live_job: str | None


LONGEST_WAIT = timedelta(days=7)


def next_at(standing: Standing, now: datetime) -> datetime:
    """When it is due: after its cadence, which failures double, up to seven days."""
    if standing.maintained_at is None:
        return now
    wait: timedelta = min(LONGEST_WAIT, standing.cadence * float(2 ** min(standing.failures, 20)))
    return standing.maintained_at + wait


def why_not_now(standing: Standing, now: datetime) -> str | None:
    """Why the table is not maintained by itself now; None: it is due."""
    if standing.is_live:
        whose = f"Job {standing.live_job}" if standing.live_job is not None else "A job of somebody else"
        return f"{whose} is at work on it, or waits to be."
    if not standing.database_listed:
        return "Its database is not named in `databases` of its catalog: it is maintained only when asked for."
    if not standing.enabled:
        return f"Its maintenance is switched off ({standing.enabled_source})."
    if standing.problem is not None:
        return f"The last look could not load it: {standing.problem}"
    if standing.other_maintainer:
        return "Somebody else rewrites it: two maintainers would undo each other's work."
    if not standing.recommended:
        return "Nothing is recommended: it is healthy enough."
    due = next_at(standing, now)
    if due > now:
        after = f" after {standing.failures} failures" if standing.failures else ""
        return f"It was maintained at {standing.maintained_at:%Y-%m-%d %H:%M} UTC; its turn comes at {due:%Y-%m-%d %H:%M} UTC{after}."
    return None
