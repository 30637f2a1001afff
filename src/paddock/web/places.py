"""Where a name leads: events, audit and JSON name things as "snapshot:<id>" or by a field like "snapshot_id"."""

from collections.abc import Mapping
from functools import cache
from urllib.parse import quote
from uuid import UUID

from paddock.capability import BY_NAME, capabilities

# Those of the core; each capability declares its own (`Capability.places`).
OF_CORE: Mapping[str, str] = {
    "job": "/jobs/{}",
    "group": "/groups/{}",
    "event": "/events/{}",
    "webhook": "/webhooks/{}",
    "kind": f"/kinds/{BY_NAME}",
    "schedule": f"/schedules/{BY_NAME}",
}
# Fields that have an id of something else than their own name says.
FIELDS: Mapping[str, str] = {"retry_of": "job", "retried_by": "job", "cleanup_of": "job", "parent": "job"}
# A longer text is no name of anything.
LONGEST = 300


@cache
def places() -> Mapping[str, str]:
    found = dict(OF_CORE)
    for capability in capabilities():
        found |= capability.places
    return found


def place_of(what: str, name: str) -> str | None:
    """The page of this thing. None: its kind of thing has no pages, or this is no id of one."""
    pattern = places().get(what)
    if pattern is None or not 0 < len(name) <= LONGEST or name in (".", ".."):
        return None
    if BY_NAME in pattern:
        return pattern.replace(BY_NAME, quote(name, safe="")) if "/" not in name else None
    if "{}" not in pattern:
        return pattern
    return pattern.format(name) if is_id(name) else None


def place_of_subject(subject: str) -> str | None:
    """A job is named by its bare id."""
    what, colon, name = subject.partition(":")
    return place_of(what, name) if colon else place_of("job", subject)


def place_of_field(name: str, value: str) -> str | None:
    """Where the value of a field leads. A name leads only where the whole text says what it names; an id also by its field."""
    what = FIELDS.get(name, name.removesuffix("_id").removesuffix("s"))
    if is_id(value):
        return place_of(what, value)
    return place_of_subject(value) if ":" in value else None


def is_id(text: str) -> bool:
    try:
        return len(text) == 36 and str(UUID(text)) == text.lower()
    except ValueError:
        return False
