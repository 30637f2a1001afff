"""How far a job is, from what it reports."""

from paddock.amounts import number, several, size, span
from paddock.cli.output import Item
from paddock.jobs.reports import HowFar, how_far, share

ENDED = frozenset({"completed", "failed", "cancelled"})


def percent(job: Item) -> float | None:
    return how_far(job.get("report")).percent


def progress(job: Item) -> str:
    """For a column: `40 %, loading`."""
    if job.get("status") == "completed":
        return "100 %"
    known = how_far(job.get("report"))
    return ", ".join(part for part in (share(known.percent), known.phase) if part) or "-"


def detail(job: Item) -> str:
    """What is worth knowing at this moment, short enough for a line."""
    if job["status"] == "failed":
        return str(job.get("error_code"))
    known = how_far(job.get("report"))
    if job["status"] == "completed":
        return ", ".join([*amounts(known), f"ran {span(job.get('run_seconds') or 0)}"]) + _attempts(job)
    parts = [
        f"on {job['claimed_by']}" if job["status"] == "claimed" else None,
        f"waits for {job['waiting_on']}" if job["status"] == "submitted" else None,
        share(known.percent),
        known.phase,
        *amounts(known),
        left(known),
    ]
    return ", ".join(part for part in parts if part) + _attempts(job)


def amounts(known: HowFar) -> list[str]:
    words = {"rows": lambda n: several(n, "row"), "bytes": size}
    fetched = [known.of_all(pair, number, size) for pair in known.pairs if pair[0].startswith("fetched_")]
    return [*fetched, *(words[name](n) for name, n in known.amounts.items())]


def left(known: HowFar) -> str | None:
    return None if known.left_seconds is None else f"{span(known.left_seconds)} left"


def _attempts(job: Item) -> str:
    tries = job.get("attempt_count") or 1
    return f", attempt {tries}" if tries > 1 else ""
