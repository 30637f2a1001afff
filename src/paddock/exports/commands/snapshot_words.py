"""Snapshots and their parts, as `paddock snapshots` shows them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paddock.amounts import number, size
from paddock.cli.jobs.progress import amounts, percent
from paddock.cli.output import Column, Item, facts, field
from paddock.cli.wording import ago
from paddock.jobs.reports import how_far, share

if TYPE_CHECKING:
    from rich.console import RenderableType


FINISHED = ("completed", "failed", "cancelled")


def key_of(part: Item) -> str:
    return f"{part['section']}/{part['name']}"


def detail(part: Item) -> str:
    """How far its job is, or why it failed."""
    if part["error"] is not None:
        return f"{part['error']['message']} [{part['error']['code']}]"
    known = how_far(part["report"] if part["rows"] is None else part)
    done = percent(part) if part["status"] not in FINISHED else None
    return ", ".join(word for word in (share(done), known.phase, *amounts(known)) if word)


def sheet(snapshot: Item) -> "RenderableType":
    error = snapshot["error"] or {}
    return facts(
        [
            ("name", snapshot["name"]),
            ("id", snapshot["id"]),
            ("status", snapshot["status"]),
            ("error", error.get("message")),
            ("hint", error.get("hint")),
            ("description", snapshot["description"]),
            ("mapping", f"{snapshot['mapping_id']} version {snapshot['mapping_version']}"),
            ("engine", snapshot["engine"]),
            ("role", snapshot["role"]),
            ("owner", snapshot["owner"]),
            ("size", None if snapshot["size_bytes"] is None else size(snapshot["size_bytes"])),
            ("created", ago(snapshot["created_at"])),
            ("expires", ago(snapshot["expires_at"]) if snapshot["expires_at"] else None),
        ]
    )


def _total(snapshot: Item, counts: str) -> str:
    found = snapshot[counts]
    return "-" if found is None else number(sum(found.values()))


COLUMNS: Sequence[Column] = (
    field("id"),
    field("name", wide=True),
    field("status"),
    field("engine"),
    field("owner"),
    Column("nodes", lambda snapshot: _total(snapshot, "node_counts"), right=True),
    Column("edges", lambda snapshot: _total(snapshot, "edge_counts"), right=True),
    Column("size", lambda one: "-" if one["size_bytes"] is None else size(one["size_bytes"]), right=True),
    Column("created", lambda snapshot: ago(snapshot["created_at"])),
)
PARTS: Sequence[Column] = (
    Column("part", key_of),
    field("status"),
    field("job_id", "job"),
    Column("detail", detail, wide=True),
)
MANIFESTS: Sequence[Column] = (
    Column("part", key_of),
    Column("rows", lambda part: number(part["rows"]), right=True),
    Column("size", lambda part: size(part["bytes"]), right=True),
    Column("files", lambda part: str(part["file_count"]), right=True),
    field("started_at", "query started"),
    field("manifest", wide=True),
)
FILES: Sequence[Column] = (
    Column("rows", lambda file: number(file["rows"]), right=True),
    Column("size", lambda file: size(file["bytes"]), right=True),
    field("key", wide=True),
)
