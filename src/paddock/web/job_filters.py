"""What the address of the list of jobs asks for: read into a `Filter`, shown as chips, carried on in links.

An address is typed by people and kept for years. What cannot be read is said beside its chip, and nothing is listed
until it is mended: a list that leaves a filter out silently is read as if it had it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from paddock.api.pagination import split
from paddock.api.tokens import Caller
from paddock.jobs.errors import Refused
from paddock.jobs.filtering import Filter
from paddock.jobs.model import STATUSES
from paddock.web.words import short_id, status_word

# In the order of the chips; each is a parameter of GET /api/jobs.
NAMES: Mapping[str, str] = {
    "kind": "Kind",
    "status": "Status",
    "retrying": "Waiting to retry",
    "owner": "Owner",
    "tag": "Tag",
    "worker": "Worker",
    "group": "Group",
    "schedule": "Schedule",
    "error_code": "Error code",
    "since": "Created since",
    "until": "Created before",
    "q": "Id or error",
    "housekeeping": "With Paddock's own upkeep",
}
SWITCHES = ("retrying", "housekeeping")
ON = "1"
AGO = re.compile(r"(\d{1,5}) ?(min|m|h|d)\Z")
UNITS = {"min": "minutes", "m": "minutes", "h": "hours", "d": "days"}

Query = Mapping[str, str | tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Chip:
    """One narrowing: `Kind: probe`, the address without it, and what is wrong with it, if anything."""

    name: str
    text: str
    without: Query
    at: datetime | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    name: str
    query: Query

    @property
    def address(self) -> str:
        return here(self.query)


@dataclass(frozen=True, slots=True)
class JobListRequest:
    """`query` is the address without what is empty or unknown; `filter` is None when a part of it cannot be read.
    `every`: it leaves nothing out but by time."""

    query: Query
    filter: Filter | None
    every: bool
    problems: Mapping[str, str]
    times: Mapping[str, datetime]

    @property
    def chips(self) -> list[Chip]:
        found = []
        for name, value in self.query.items():
            if name == "status":
                found += [
                    Chip(
                        NAMES[name],
                        status_word(status),
                        self.without(name, status),
                        problem=None if status in STATUSES else self.problems.get(name),
                    )
                    for status in value
                ]
            else:
                text, at = self._words(name, str(value))
                found.append(Chip(NAMES[name], text, self.without(name), at, self.problems.get(name)))
        return found

    def _words(self, name: str, value: str) -> tuple[str, datetime | None]:
        if name in SWITCHES:
            return "", None
        if name in self.times:
            ago = AGO.match(value)
            return (f"{ago[1]} {'min' if ago[2] == 'm' else ago[2]} ago", None) if ago else ("", self.times[name])
        if name == "group" and name not in self.problems:
            return short_id(value), None
        return value, None

    def plus(self, name: str, value: str) -> Query:
        """This address, narrowed once more; another value of the same field is replaced."""
        return _ordered({**self.query, name: (value,) if name == "status" else value})

    def without(self, name: str, status: str | None = None) -> Query:
        left = {key: value for key, value in self.query.items() if key != name}
        if status is not None:
            left[name] = tuple(other for other in self.query[name] if other != status)
        return _ordered(left)

    @property
    def stream(self) -> dict[str, str]:
        """What narrows the stream too."""
        return {name: str(self.query[name]) for name in ("kind", "group") if name in self.query}


def read(items: Iterable[tuple[str, Any]], caller: Caller, now: datetime) -> JobListRequest:
    query = query_of(items)
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name, value in query.items():
        try:
            values[name] = _value(name, value, now)
        except Refused as problem:
            problems[name] = problem.message
        except ValueError as problem:
            problems[name] = str(problem)
    times = {name: value for name, value in values.items() if isinstance(value, datetime)}
    if problems:
        return JobListRequest(query, None, False, problems, times)
    asked = _filter(values)
    return JobListRequest(query, _scoped(asked, caller), asked.empty, problems, times)


def query_of(items: Iterable[tuple[str, Any]]) -> Query:
    """The narrowing part of an address, in one order and without what is empty."""
    found: dict[str, Any] = {}
    for name, value in items:
        text = value.strip() if isinstance(value, str) else ""
        if name == "status":
            found[name] = (*found.get(name, ()), *(split([text]) or ()))
        elif name in SWITCHES:
            found |= {name: ON} if text in (ON, "true", "on") else {}
        elif name in NAMES and text:
            found[name] = text
    return _ordered(found)


def _ordered(query: Query) -> Query:
    """Equal lists have equal addresses: saved views are told apart by them."""
    found: dict[str, str | tuple[str, ...]] = {name: query[name] for name in NAMES if query.get(name)}
    if "status" in found:
        found["status"] = tuple(sorted(set(found["status"]), key=_place))
    return found


def _place(status: str) -> tuple[int, str]:
    return (STATUSES.index(status) if status in STATUSES else len(STATUSES), status)


def _value(name: str, value: str | tuple[str, ...], now: datetime) -> Any:
    if isinstance(value, tuple):
        return Filter(status=value).checked().status
    if name in SWITCHES:
        return True
    if name in ("since", "until"):
        return read_time(value, now)
    if name == "group":
        try:
            return UUID(value)
        except ValueError:
            raise ValueError(f"'{value[:100]}' is not the id of a group.") from None
    Filter(**{name: value}).checked()  # type: ignore[arg-type]  # the other fields are texts
    return value


def read_time(text: str, now: datetime) -> datetime:
    """`24h`, `7d`, `2026-11-15`, `2026-11-15T09:30:00Z`; without a zone it is UTC."""
    ago = AGO.match(text)
    try:
        if ago:
            return now - timedelta(**{UNITS[ago[2]]: int(ago[1])})
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"'{text[:100]}' is not a time: write 15m, 24h or 7d for so long ago, or 2026-11-15 or 2026-11-15T09:30Z."
        ) from None


def _filter(values: Mapping[str, Any]) -> Filter:
    everything = any(name in values for name in ("housekeeping", "kind", "schedule"))
    fields = {name: value for name, value in values.items() if name != "housekeeping"}
    return Filter(**fields, include_housekeeping=everything)


def _scoped(asked: Filter, caller: Caller) -> Filter:
    """What the caller may see of it: of somebody else's jobs nothing, as if there were none."""
    if caller.scope is None:
        return asked
    hidden = asked.owner is not None and not caller.sees(asked.owner)
    return replace(asked, owner=caller.scope, ids=() if hidden else None)


def here(query: Query, cursor: str | None = None) -> str:
    """The list as scripts and forms carry it, to come back to."""
    return urlencode({**query, **({"cursor": cursor} if cursor else {})}, doseq=True)


def path_back(text: str, **more: Any) -> str:
    """The list that a form came from. Only what an address of ours can have: it leads nowhere else."""
    items = parse_qsl(text)
    query = here({**query_of(items), **more}, dict(items).get("cursor"))
    return f"/jobs?{query}" if query else "/jobs"


def built_in(caller: Caller) -> Sequence[View]:
    views = [
        View("All", {}),
        View("Running", {"status": ("claimed",)}),
        View("Waiting to retry", {"retrying": ON}),
        View("Failed today", {"status": ("failed",), "since": "24h"}),
    ]
    return [*views, View("Mine", {"owner": caller.owner})] if caller.operator else views
