"""Instances as `paddock instances` shows them, and what can be done next.

Names, values and logs are whatever somebody put there: on a terminal their control characters are shown, never obeyed.
"""

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paddock.amounts import number
from paddock.cli.connection import Connect
from paddock.cli.output import Column, Item, facts, field
from paddock.cli.wording import ago

if TYPE_CHECKING:
    from rich.console import RenderableType

# All but tab and newline, and those that reverse the direction of writing.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    return CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def sheet(instance: Item) -> "RenderableType":
    from paddock.client.progress import in_words
    from paddock.runtimes.diagnosis import who_mends

    error = instance.get("error") or {}
    diagnosis = error.get("diagnosis") or {}
    on_the_way = instance["status"] in ("waiting_for_snapshot", "starting")
    return facts(
        [
            ("name", harmless(instance["name"])),
            ("id", instance["id"]),
            ("status", instance["status"]),
            ("progress", in_words(dict(instance)) if on_the_way else None),
            ("error", harmless(error.get("message") or "")),
            ("hint", harmless(error.get("hint") or "")),
            ("who mends it", who_mends(diagnosis)),
            ("the cluster", harmless(diagnosis.get("words") or "")),
            ("description", harmless(instance.get("description") or "")),
            ("mapping", _mapping(instance)),
            ("snapshot", instance.get("snapshot_id") or instance.get("pending_snapshot_id")),
            ("engine", instance["wrapper_type"]),
            ("owner", instance["owner"]),
            ("size", f"{instance['memory_gb']} GB, {instance['cpu_cores']} cores"),
            ("left out", _dangling(instance.get("dangling_edges") or {})),
            ("created", ago(instance["created_at"])),
            ("last asked", ago(instance["last_activity_at"]) if instance.get("last_activity_at") else None),
            ("expires", ago(instance["expires_at"]) if instance.get("expires_at") else None),
        ]
    )


def _mapping(instance: Item) -> str | None:
    if instance.get("mapping_id") is None:
        return None
    return f"{instance['mapping_id']} version {instance.get('mapping_version')}"


def _dangling(by_type: Mapping[str, int]) -> str:
    """Edges whose ends no node has."""
    return ", ".join(f"{number(count)} {harmless(type)} edges without both ends" for type, count in by_type.items())


def tell_next(instance: Item, connect: Connect) -> None:
    """What people do next, on stderr: an answer that a program reads stays one."""
    name = f"{shlex.quote(instance['name'])}{connect.options}"
    lines = {
        "waiting_for_snapshot": [f"paddock instances show {name} --watch   follows it until it runs"],
        "starting": [f"paddock instances show {name} --watch   follows it until it runs"],
        "running": [
            f"paddock instances schema {name}   tells its labels and properties",
            f'paddock instances query {name} "MATCH (n) RETURN n LIMIT 5"   asks it',
        ],
        "failed": [
            f"paddock instances logs {name}   tells what it said last",
            f"paddock instances reopen {name}   starts it once more",
        ],
    }.get(instance["status"], [])
    sys.stderr.write("".join(f"  {harmless(line)}\n" for line in lines))


def cell(value: Any) -> str:
    """A value of a row: text as it is, everything else as JSON; a dash is NULL."""
    if value is None:
        return "-"
    return harmless(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).replace("\n", "⏎")


COLUMNS: Sequence[Column] = (
    field("id"),
    Column("name", lambda one: harmless(one["name"]), wide=True),
    field("status"),
    field("owner"),
    Column("memory", lambda one: f"{one['memory_gb']} GB", right=True),
    Column("created", lambda one: ago(one["created_at"])),
    Column("expires", lambda one: ago(one["expires_at"]) if one.get("expires_at") else "-"),
)
