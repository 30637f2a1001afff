"""The pages of the navigation, in its order: the core's first, then a group for each capability, then operating.

Who may see an entry is who may open its path.
"""

from collections.abc import Sequence
from functools import cache

from paddock.api.access import Table, allowed
from paddock.capability import NavigationEntry, capabilities

FIRST: Sequence[NavigationEntry] = (
    NavigationEntry("/", "Overview", "overview", "o"),
    NavigationEntry("/jobs", "Jobs", "jobs", "j"),
)
OPERATING: Sequence[NavigationEntry] = (
    NavigationEntry("/groups", "Groups", "groups", "r"),
    NavigationEntry("/kinds", "Kinds", "kinds", "k"),
    NavigationEntry("/workers", "Workers", "workers", "w"),
    NavigationEntry("/schedules", "Schedules", "schedules", "s"),
    NavigationEntry("/events", "Events", "events", "e"),
    NavigationEntry("/webhooks", "Webhooks", "webhooks", "h"),
    NavigationEntry("/audit", "Audit", "audit", "a"),
    NavigationEntry("/settings", "Settings", "settings", "t"),
)


@cache
def groups() -> tuple[tuple[NavigationEntry, ...], ...]:
    taken = {entry.key for entry in (*FIRST, *OPERATING)}
    declared = []
    for capability in capabilities():
        # Of two entries with one key the first has it.
        entries = [entry if entry.key not in taken else entry._replace(key="") for entry in capability.navigation]
        taken |= {entry.key for entry in entries}
        declared += [tuple(entries)] if entries else []
    return (tuple(FIRST), *declared, tuple(OPERATING))


def groups_for(role: str, table: Table) -> list[list[NavigationEntry]]:
    """Without the entries that this role may not open, and without groups that are empty then."""
    mine = [[entry for entry in group if role in allowed(table, "GET", entry.path)] for group in groups()]
    return [group for group in mine if group]


def entries_for(role: str, table: Table) -> list[NavigationEntry]:
    return [entry for group in groups_for(role, table) for entry in group]


def current(path: str) -> str:
    """The entry a page belongs to: '/jobs/019a…' is under '/jobs'."""
    first = "/" + path.lstrip("/").partition("/")[0]
    return first if any(entry.path == first for group in groups() for entry in group) else ""
