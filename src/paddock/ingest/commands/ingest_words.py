"""Sources, runs, batches and files, as `paddock ingest` shows them."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from paddock.amounts import gibibytes, number, size, span
from paddock.cli.output import Column, Item, facts, field
from paddock.cli.wording import ago, moment, now
from paddock.ingest.model import LIVE as LIVE

if TYPE_CHECKING:
    from rich.console import RenderableType


def one_line(run: Item, at: datetime | None = None) -> str:
    batches = run["batches"]
    done = batches.get("published", 0)
    words = [f"{run['source']}: {run['status']}", f"{number(done)} of {number(run['next_batch'])} batches published"]
    words.append(f"{number(run['passed'])} records")
    if left_out := run["rejected"] + run["errors"]:
        words.append(f"{number(left_out)} rejected")
    if run["failed_batches"]:
        words.append(f"{number(run['failed_batches'])} batches failed")
    return ", ".join([*words, *_pace(run, at or now())])


def _pace(run: Item, at: datetime) -> Sequence[str]:
    """What is true only while it goes on: how fast it is, what waits, and how long it takes where the source told a total."""
    began = moment(run["created_at"])
    seconds = 0.0 if began is None else (at - began).total_seconds()
    if run["status"] not in LIVE or seconds < 1:
        return []
    fetching = run["fetching"] or {}
    rows = fetching.get("rows") or 0
    words = [f"{number((run['fetched'] + rows) / seconds)} records/s"]
    if run["held_since"]:
        words.append(f"held: {gibibytes(run['waiting_bytes'])} wait for hooks")
    elif run["waiting_bytes"]:
        words.append(f"{size(run['waiting_bytes'])} wait for hooks")
    since, total = moment(fetching.get("since")), fetching.get("total")
    if since is not None and rows and isinstance(total, int) and total > rows:
        words.append(f"about {span((at - since).total_seconds() * (total - rows) / rows)} left to fetch")
    return words


def run_sheet(run: Item) -> "RenderableType":
    error = run["error"] or {}
    by_status = ", ".join(f"{number(n)} {status}" for status, n in sorted(run["batches"].items()))
    return facts(
        [
            ("source", run["source"]),
            ("id", run["id"]),
            ("status", run["status"]),
            ("error", error.get("message")),
            ("hint", error.get("hint")),
            ("batches", by_status or "none"),
            ("records", number(run["records"])),
            ("published", number(run["passed"])),
            ("rejected", number(run["rejected"])),
            ("errors", number(run["errors"]) if run["errors"] else None),
            ("duplicates", number(run["duplicates"]) if run["duplicates"] else None),
            ("from", run["request"].get("from")),
            ("owner", run["owner"]),
            ("started", ago(run["created_at"])),
            ("ended", ago(run["ended_at"]) if run["ended_at"] else None),
        ]
    )


def _last(source: Item, name: str) -> str:
    run = source["last_run"]
    return "-" if run is None else str(run[name])


def _error(batch: Item) -> str:
    error = batch["error"]
    return "-" if error is None else f"{error['message']} [{error['code']}]"


SOURCES: Sequence[Column] = (
    field("name"),
    field("hooks"),
    Column("last run", lambda one: _last(one, "status")),
    Column("started", lambda one: "-" if one["last_run"] is None else ago(one["last_run"]["created_at"])),
    Column("files", lambda one: number(one["totals"]["files"]), right=True),
    Column("rows", lambda one: number(one["totals"]["rows"]), right=True),
    Column("size", lambda one: size(one["totals"]["bytes"]), right=True),
    field("description", wide=True),
)
RUNS: Sequence[Column] = (
    field("id"),
    field("source"),
    field("status"),
    Column("batches", lambda one: number(one["next_batch"]), right=True),
    Column("published", lambda one: number(one["passed"]), right=True),
    Column("rejected", lambda one: number(one["rejected"] + one["errors"]), right=True),
    Column("failed batches", lambda one: number(one["failed_batches"]), right=True),
    Column("started", lambda one: ago(one["created_at"])),
)
BATCHES: Sequence[Column] = (
    Column("batch", lambda one: str(one["n"]), right=True),
    field("status"),
    Column("records", lambda one: number(one["records"]), right=True),
    Column("passed", lambda one: "-" if one["passed"] is None else number(one["passed"]), right=True),
    Column("rejected", lambda one: "-" if one["rejected"] is None else number(one["rejected"]), right=True),
    Column("size", lambda one: size(one["bytes"]), right=True),
    field("job_id", "job"),
    Column("error", _error, wide=True),
)
FILES: Sequence[Column] = (
    field("id"),
    Column("batch", lambda one: str(one["batch"]), right=True),
    Column("rows", lambda one: number(one["rows"]), right=True),
    Column("rejected", lambda one: number(one["rejected"]), right=True),
    Column("size", lambda one: size(one["bytes"]), right=True),
    Column("published", lambda one: ago(one["published_at"])),
    field("path", wide=True),
)
REJECTED: Sequence[Column] = (
    field("id"),
    field("stream"),
    field("hook"),
    field("outcome"),
    field("reason", wide=True),
)
