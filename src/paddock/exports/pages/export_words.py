"""A plain export in words: what it exports, and how it stands in one sentence."""

from collections.abc import Mapping
from typing import Any

from paddock.amounts import listed
from paddock.exports.plain import Export
from paddock.jobs.model import Job
from paddock.web.words import duration, number, plural, size

LONGEST_NAME = 160


def title_of(export: Export) -> str:
    """What its owner calls it, else what it exports."""
    return export.name or what_of(export)


def what_of(export: Export) -> str:
    """A table by its name, a query in one line."""
    asked = export.request
    if asked.get("table"):
        return ".".join(part for part in (asked.get("catalog"), asked.get("schema"), asked["table"]) if part)
    text = " ".join(str(asked.get("sql") or "").split())
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}…"


def complete_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, with every field: a request is kept without what was left out."""
    absent = dict.fromkeys(("sql", "table", "catalog", "schema", "destination", "max_rows", "parameters"))
    return {**absent, "options": {}, "if_exists": "error", **request}


def format_of(export: Export) -> str:
    asked = export.request
    compression = asked.get("options", {}).get("compression")
    name = str(asked.get("format", "parquet"))
    return f"{name}, {compression}" if compression else name


def files_of(export: Export) -> str:
    """'5,000 rows in 1 file, 54.2 kB'."""
    amount = f"{plural(export.rows or 0, 'row')} in {plural(export.files or 0, 'file')}"
    return f"{amount}, {size(export.bytes or 0)}"


def sentence(export: Export, job: Job | None) -> str:
    """After its state, which stands before it as a badge. `job` is the one at work, else the last."""
    match export.shown_status:
        case "completed":
            return f"{files_of(export)}.{_took(job)}{_cut(job)}{_direct(job)}"
        case "failed":
            return str((export.error or {}).get("message") or "Its job failed.")
        case "cancelled":
            return "It was cancelled and has no files."
        case "deleting":
            return "Its files are being removed; then it is gone."
    return _at_work(job)


def _at_work(job: Job | None) -> str:
    if job is None:
        return ""
    if job.status == "claimed":
        return f"It runs on {job.claimed_by}."
    if job.status == "submitted":
        return f"It waits for {job.waiting_on or 'the engine'}."
    if job.turn_count == 0:
        return "It waits for a free worker."
    return "It waits for its next try." if job.failure_count or job.cluster_count else "It waits for its next turn."


def _took(job: Job | None) -> str:
    return f" Took {duration(job.run_seconds)}." if job is not None and job.run_seconds else ""


def _result(job: Job | None) -> Mapping[str, Any]:
    return job.result if job is not None and isinstance(job.result, dict) else {}


def _direct(job: Job | None) -> str:
    why = _result(job).get("direct_because")
    return f" Written by the worker, not by the engine: {why}" if why else ""


def _cut(job: Job | None) -> str:
    result = _result(job)
    return f" Cut after {plural(result['rows'], 'row')}, as asked." if result.get("truncated") else ""


def summary(found: list[Export]) -> str:
    """Of the list's page: what is under way and what went wrong."""
    counts = {word: sum(export.shown_status in states for export in found) for word, states in _GROUPS.items()}
    parts = [f"{number(n)} {word}" for word, n in counts.items() if n]
    return f"{listed(parts)}." if parts else ""


_GROUPS = {
    "running": ("pending", "running"),
    "completed": ("completed",),
    "failed": ("failed",),
    "cancelled": ("cancelled",),
    "going": ("deleting",),
}


def last_error(job: Job | None) -> Mapping[str, Any] | None:
    """Of a job that is tried again: why."""
    if job is None or job.ended or not job.errors:
        return None
    return job.errors[-1]


def waits_again(job: Job | None) -> Mapping[str, Any] | None:
    """Why a job waits for its next try; None when it does not."""
    return last_error(job) if job is not None and job.status == "pending" else None
