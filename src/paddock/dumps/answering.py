"""A dump as StarbaseDB's clients read it: camelCase, times `YYYY-MM-DD HH:MM:SS` in UTC, every key always there."""

from datetime import UTC, datetime
from typing import Any

from paddock.config import Config
from paddock.dumps.callbacks import download_url
from paddock.dumps.dumps import Dump
from paddock.dumps.settings import DumpSettings


def dump_json(dump: Dump, config: Config, version: int = 1) -> dict[str, Any]:
    status, error = status_and_error(dump, version)
    report = (dump.report or {}) if dump.live is not None else {}
    # One that failed or was cancelled has come as far as it said last.
    reached = report if dump.live is not None else dump.last_report or {}
    completed = dump.live is None and dump.status == "completed"
    return {
        "jobId": dump.id,
        "status": status,
        "database": dump.database,
        "format": dump.format,
        "completedTables": dump.table_count if completed else reached.get("tables_done", 0),
        "totalTables": dump.table_count if completed else reached.get("tables_total", _named(dump)),
        "currentTable": report.get("table"),
        "rowsWritten": reached.get("rows", 0) if not completed else dump.rows,
        "bytesWritten": reached.get("bytes", 0) if not completed else dump.size,
        "percent": 100 if completed else reached.get("percent", 0),
        "etaSeconds": report.get("eta_seconds"),
        "pointInTime": _time(dump.point_in_time if completed else report.get("point_in_time")),
        "waitingReason": dump.problem or (report.get("reason") if report.get("phase") == "waiting" else None),
        "snapshotAgeSeconds": snapshot_age(dump, config),
        "restarts": (dump.restarts if completed else reached.get("restarts")) or 0,
        "createdAt": _time(dump.created_at),
        "completedAt": None if dump.live is not None else _time(dump.ended_at),
        "errorMessage": error,
        "owner": dump.owner,
        "request": dump.request,
        "fileName": dump.file_name if completed else None,
        "fileBytes": dump.size if completed else None,
        "digest": dump.digest if completed else None,
        "partBytes": dump.part_size if completed else None,
        "tables": dump.tables if completed else None,
        "downloadUrl": download_url(dump.id, config) if completed else None,
        "expiresAt": _time(dump.expires_at),
        "schedule": dump.schedule,
        "job": str(dump.live or dump.job_id),
    }


def _named(dump: Dump) -> int:
    """The tables that were asked for by name; 0 before anybody looked how many the database has."""
    return 1 if "table" in dump.request else len(dump.request.get("tables", ()))


def snapshot_age(dump: Dump, config: Config) -> int | None:
    """Of the snapshot that it holds in PostgreSQL just now; a copy of a file holds nobody up."""
    live = config.of(DumpSettings).databases.get(dump.database, {}).get("type") == "postgres"
    return max(0, round(dump.frozen_for)) if live and dump.frozen_for is not None else None


def status_and_error(dump: Dump, version: int) -> tuple[str, str | None]:
    """Status and error message. Older clients know of no cancelling, and must stop asking."""
    status = dump.shown_status
    if status == "cancelled" and version < 2:
        return "failed", "Cancelled"
    message = (dump.error or {}).get("message") if status in ("failed", "cancelled") else None
    return status, message


def _time(at: datetime | str | None) -> str | None:
    """As a report may bring it, too."""
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            return None
    if at is None:
        return None
    return f"{at.replace(tzinfo=at.tzinfo or UTC).astimezone(UTC):%Y-%m-%d %H:%M:%S}"
