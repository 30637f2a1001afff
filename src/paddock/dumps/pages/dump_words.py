"""A dump in words: what it is of, how it stands in one sentence, and how far it is.

What a worker reports is lossy, and may be from the turn before: a dump gives way every few seconds, and its words must not
change with each turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from paddock.amounts import listed
from paddock.dumps.dumps import Dump
from paddock.dumps.pages.dump_tables import Tables
from paddock.jobs.figures.overviews import KindSeen
from paddock.jobs.model import Job
from paddock.web.progress import Progress, reported
from paddock.web.words import duration, number, plural, size

FORMATS = {"sql": "SQL", "json": "JSON", "csv": "CSV", "sqlite": "SQLite file", "custom": "pg_dump archive"}
TYPES = {"sqlite": "SQLite", "duckdb": "DuckDB", "postgres": "PostgreSQL"}
PHASES = ("copying", "dumping", "completing", "waiting")
# Sooner a rate says little.
SETTLED_SECONDS = 3.0
LEAST_PERCENT = 1.0
LONGEST_LEFT_SECONDS = 30 * 86_400
# Where the error brings none of its own.
ADVICE = {"unknown_table": "“Make one like it” opens the form as it was: choose tables that are there."}


def format_of(dump: Dump) -> str:
    """'CSV, gzip'."""
    name, compress = FORMATS.get(dump.format, dump.format), dump.request.get("compress", "none")
    return name if compress == "none" else f"{name}, {compress}"


def part_of(dump: Dump) -> str:
    """What of the database; empty for all of it."""
    asked = dump.request
    only = [asked["table"]] if asked.get("table") else asked.get("tables") or []
    without = asked.get("excludeTables") or []
    parts = []
    if only:
        parts.append(f"only {only[0]}" if len(only) == 1 else f"only {plural(len(only), 'table')}")
    if without:
        parts.append(f"without {without[0]}" if len(without) == 1 else f"without {plural(len(without), 'table')}")
    if asked.get("schemaOnly"):
        parts.append("no rows")
    if asked.get("dataOnly"):
        parts.append("rows only")
    return ", ".join(parts)


def chosen(dump: Dump) -> bool:
    """Whether it has not all tables."""
    return any(dump.request.get(name) for name in ("table", "tables", "excludeTables"))


def options_of(dump: Dump) -> str:
    asked = dump.request
    words = {
        "schemaOnly": "schema only",
        "dataOnly": "rows only",
        "noOwner": "without owners",
        "preserveRowids": "with rowids",
        "csvSafe": "safe for spreadsheets",
    }
    return ", ".join(word for name, word in words.items() if asked.get(name))


def file_of(dump: Dump) -> str:
    """'12 tables, 54,210 rows, 5.2 MB'."""
    tables = plural(dump.table_count or 0, "table")
    rows = "rows not counted" if dump.rows is None else plural(dump.rows, "row")
    return f"{tables}, {rows}, {size(dump.size or 0)}"


# How it stands


@dataclass(frozen=True, slots=True)
class State:
    word: str
    tone: str
    symbol: str


_STATES = {
    "pending": State("pending", "wait", "pending"),
    "completed": State("completed", "good", "completed"),
    "failed": State("failed", "bad", "failed"),
    "cancelled": State("cancelled", "quiet", "cancelled"),
    "deleting": State("deleting", "quiet", "cancelled"),
}


def state(dump: Dump, job: Job | None) -> State:
    known = _STATES.get(dump.shown_status)
    if known is not None:
        return known
    phase = phase_of(dump.report)
    if trouble(job) is not None:
        return State("trying again", "wait", "again")
    return State("waiting", "wait", "paused") if phase == "waiting" else State(phase or "starting", "busy", "claimed")


def phase_of(report: Mapping[str, Any] | None) -> str | None:
    phase = (report or {}).get("phase")
    return phase if phase in PHASES else None


def sentence(dump: Dump, job: Job | None, kind: KindSeen | None) -> str:
    """After its state, which stands before it as a badge. `job` is the one at work, else the last; `kind` is known of
    while it waits."""
    match dump.shown_status:
        case "completed":
            return f"{file_of(dump)}.{_took(job)}{_missing(job)}"
        case "failed":
            return str((dump.error or {}).get("message") or "Its job failed.")
        case "cancelled":
            return "It was cancelled and has no file."
        case "deleting":
            return "Its file is being removed; then it is gone."
        case "pending":
            return _why_waits(dump, kind) or "It waits for a free worker."
    if job is not None and job.status == "pending" and (why := _why_waits(dump, kind)):
        return why
    return _at_work(dump, job)


def _missing(job: Job | None) -> str:
    """What a JSON or CSV file lacks, if it does."""
    found = job.result.get("unreadable") if job is not None and isinstance(job.result, dict) else None
    return f" Without {listed(found)}: rows that nobody can read." if found else ""


def _why_waits(dump: Dump, kind: KindSeen | None) -> str | None:
    if kind is None:
        return None
    if kind.paused:
        return f"It waits: dumps of {dump.database} are paused."
    if kind.unoffered:
        return f"It waits: no live worker can open {dump.database}. Start one whose paddock.toml names it."
    return None


def _at_work(dump: Dump, job: Job | None) -> str:
    report = dump.report or {}
    if job is not None and _failing(job) and job.status == "pending":
        return "It waits for its next try."
    match phase_of(report):
        case "copying":
            told = f", {_share(report)} so far" if _share(report) else ""
            return f"The database is being copied{told}: the dump is made of the copy."
        case "dumping":
            return _table_words(report)
        case "completing":
            return "All is written; the file is being completed."
        case "waiting":
            return str(report.get("reason") or "It waits for room on the worker's disk.")
    return f"It begins on {job.claimed_by}." if job is not None and job.claimed_by else "It begins."


def _table_words(report: Mapping[str, Any]) -> str:
    tables, table = Tables.from_report(report), report.get("table")
    if not tables.total:
        return "The file is being written."
    if not isinstance(table, str) or tables.done >= tables.total:
        return f"{tables.done:,} of {plural(tables.total, 'table')} are written."
    return f"Table {table} is being written, {tables.done + 1:,} of {tables.total:,}."


def _share(report: Mapping[str, Any]) -> str:
    return reported({"percent": report.get("percent")}).share


def _took(job: Job | None) -> str:
    return f" Took {duration(job.run_seconds)}." if job is not None and job.run_seconds else ""


def _failing(job: Job) -> bool:
    """Since it last got on: a failure that it got over is no news."""
    return bool(job.failure_count or job.lost_count) or (job.status == "pending" and bool(job.cluster_count))


def trouble(job: Job | None) -> Mapping[str, Any] | None:
    """Of one that is tried again: why."""
    return job.errors[-1] if job is not None and not job.ended and job.errors and _failing(job) else None


def advice(job: Job | None) -> str | None:
    """What to do about the failure that it ended with."""
    if job is None or not job.errors:
        return None
    hint = job.errors[-1].get("hint") or ADVICE.get(str(job.error_code))
    return str(hint) if hint else None


def point_in_time(dump: Dump) -> datetime | None:
    """The moment it stands for: known once its database is frozen."""
    if dump.live is None:
        return dump.point_in_time
    told = (dump.report or {}).get("point_in_time")
    try:
        at = datetime.fromisoformat(told) if isinstance(told, str) else None
    except ValueError:
        return None
    return None if at is None else at.replace(tzinfo=at.tzinfo or UTC)


def restarts(dump: Dump) -> int:
    told = dump.restarts if dump.live is None else (dump.report or {}).get("restarts")
    return told if isinstance(told, int) else 0


# How far it is


def progress(dump: Dump, job: Job | None, now: datetime) -> Progress | None:
    """With a rate and the time left, by all the time it ran: turns are short, and each alone says little."""
    if dump.report is None:
        return None
    known: dict[str, Any] = {name: dump.report[name] for name in ("percent", "rows", "bytes") if name in dump.report}
    found = reported(known)
    if phase_of(dump.report) != "dumping" or trouble(job) is not None:
        return replace(found, phase="of the copy") if phase_of(dump.report) == "copying" else found
    ran = _ran(dump, job, now)
    return replace(found, rate=_rate(found, ran), left=_left(dump, found.percent, ran))


def _ran(dump: Dump, job: Job | None, now: datetime) -> float | None:
    """None: a draft that was given up had a part in it, or it is too soon."""
    if job is None or restarts(dump):
        return None
    ran = job.run_seconds
    if job.attempt_id is not None and job.claimed_at is not None:
        ran += (now - job.claimed_at).total_seconds()
    return ran if ran >= SETTLED_SECONDS else None


def _rate(found: Progress, ran: float | None) -> str | None:
    if ran is None:
        return None
    rows, written = found.counted.get("rows"), found.counted.get("bytes")
    told = [f"{number(float(round(rows / ran)))} rows/s"] if rows else []
    return ", ".join([*told, *([f"{size(written / ran)}/s"] if written else [])]) or None


def _left(dump: Dump, percent: float | None, ran: float | None) -> str | None:
    if percent is not None and ran is not None and LEAST_PERCENT <= percent < 100:
        seconds = ran * (100 - percent) / percent
    else:
        told = (dump.report or {}).get("eta_seconds")
        if isinstance(told, bool) or not isinstance(told, int | float):
            return None
        seconds = float(told)
    return f"about {duration(max(1.0, seconds))} left" if 0 <= seconds <= LONGEST_LEFT_SECONDS else None


def brief(dump: Dump, job: Job | None) -> str:
    """For a line of the list, beside its percentage."""
    report, failure = dump.report or {}, trouble(job)
    if failure is not None:
        return str(failure["message"])
    if phase_of(report) == "waiting":
        return str(report.get("reason") or "")
    tables = Tables.from_report(report)
    return f"table {min(tables.done + 1, tables.total):,} of {tables.total:,}" if tables.total else ""


def amounts(dump: Dump) -> Mapping[str, float]:
    """Rows and bytes: of the file, or so far."""
    if dump.live is not None:
        return reported(dump.report).counted
    return {name: n for name, n in (("rows", dump.rows), ("bytes", dump.size)) if n is not None}


def summary(found: Sequence[Dump]) -> str:
    """Of the list's page: what is under way and what went wrong."""
    counts = {word: sum(dump.shown_status in states for dump in found) for word, states in _GROUPS.items()}
    parts = [f"{number(n)} {word}" for word, n in counts.items() if n]
    return f"{listed(parts)}." if parts else ""


_GROUPS = {
    "under way": ("pending", "in_progress"),
    "completed": ("completed",),
    "failed": ("failed",),
    "cancelled": ("cancelled",),
}
