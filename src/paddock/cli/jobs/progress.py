"""How far a job is, from what it reports."""

from paddock.cli.output import Item
from paddock.cli.wording import number, size, span

ENDED = frozenset({"completed", "failed", "cancelled"})


def percent(job: Item) -> float | None:
    """Told as such, or as a count out of a total."""
    report = job.get("report") or {}
    told, done, total = (_number(report.get(name)) for name in ("percent", "done", "total"))
    if told is None and done is not None and total:
        return 100 * done / total
    return told


def progress(job: Item) -> str:
    """For a column: `40 %, loading`."""
    if job.get("status") == "completed":
        return "100 %"
    phase = (job.get("report") or {}).get("phase")
    return ", ".join(part for part in (_percent(job), str(phase) if phase else None) if part) or "-"


def detail(job: Item) -> str:
    """What is worth knowing at this moment, short enough for a line."""
    report = job.get("report") or {}
    if job["status"] == "failed":
        return str(job.get("error_code"))
    if job["status"] == "completed":
        return f"ran {span(job.get('run_seconds') or 0)}" + _attempts(job)
    told = [
        f"on {job['claimed_by']}" if job["status"] == "claimed" else None,
        f"waits for {job['waiting_on']}" if job["status"] == "submitted" else None,
        _percent(job),
        str(report["phase"]) if report.get("phase") else None,
        f"{number(report['rows'])} rows" if isinstance(report.get("rows"), int) else None,
        size(report["bytes"]) if isinstance(report.get("bytes"), int) else None,
        f"{span(report['eta_seconds'])} left" if _number(report.get("eta_seconds")) is not None else None,
    ]
    return ", ".join(part for part in told if part) + _attempts(job)


def _percent(job: Item) -> str | None:
    known = percent(job)
    return None if known is None else f"{known:.0f} %"


def _attempts(job: Item) -> str:
    tries = job.get("attempt_count") or 1
    return f", attempt {tries}" if tries > 1 else ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
