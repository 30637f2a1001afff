"""The pages of the navigation, in its order. Who may see one says `paddock.api.access`, like of every route.

`key` is typed after `g` to go there, `icon` names a symbol of templates/parts/sprite.svg.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.api.access import allowed


@dataclass(frozen=True, slots=True)
class Entry:
    path: str
    name: str
    icon: str
    key: str
    # Whether a new group begins with it.
    begins: bool = False


ENTRIES: Sequence[Entry] = (
    Entry("/", "Overview", "overview", "o"),
    Entry("/jobs", "Jobs", "jobs", "j"),
    # Exports
    Entry("/exports", "Exports", "exports", "x", begins=True),
    Entry("/mappings", "Mappings", "mappings", "m"),
    Entry("/snapshots", "Snapshots", "snapshots", "p"),
    Entry("/engines", "Engines", "engines", "n"),
    # Databases
    Entry("/dumps", "Dumps", "dumps", "d", begins=True),
    # Operating
    Entry("/groups", "Groups", "groups", "r", begins=True),
    Entry("/kinds", "Kinds", "kinds", "k"),
    Entry("/workers", "Workers", "workers", "w"),
    Entry("/schedules", "Schedules", "schedules", "s"),
    Entry("/events", "Events", "events", "e"),
    Entry("/webhooks", "Webhooks", "webhooks", "h"),
    Entry("/audit", "Audit", "audit", "a"),
    Entry("/settings", "Settings", "settings", "t"),
)


def entries_for(role: str) -> list[Entry]:
    return [entry for entry in ENTRIES if role in allowed("GET", entry.path)]


def current(path: str) -> str:
    """The entry a page belongs to: '/jobs/019a…' is under '/jobs'."""
    first = "/" + path.lstrip("/").partition("/")[0]
    return first if any(entry.path == first for entry in ENTRIES) else ""
