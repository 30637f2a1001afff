"""How long instances live: what is asked for, the defaults and the bounds, which are global config."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

import orjson
from pydantic import AfterValidator

from paddock.api import global_config
from paddock.api.durations import parse
from paddock.api.errors import invalid_field
from paddock.db.pool import Database
from paddock.instances.model import SQL
from paddock.jobs import durations

DEFAULT_TTL = ("lifecycle.instance.default_ttl", "PT24H")
DEFAULT_INACTIVITY = ("lifecycle.instance.default_inactivity", "PT4H")
MAX_TTL = ("lifecycle.instance.max_ttl", "P7D")
SNAPSHOT_TTL = ("lifecycle.snapshot.default_ttl", "P7D")


def _duration(text: str) -> str:
    if durations.parse(text) <= timedelta(0):
        raise ValueError("It must be longer than zero.")
    return text


Duration = Annotated[str, AfterValidator(_duration)]
global_config.declare(
    DEFAULT_TTL[0], Duration, DEFAULT_TTL[1], "How long an instance lives that asks for nothing else."
)
global_config.declare(
    DEFAULT_INACTIVITY[0], Duration, DEFAULT_INACTIVITY[1], "After how long without a query an instance ends."
)
global_config.declare(MAX_TTL[0], Duration, MAX_TTL[1], "The longest that an instance may live from now on.")
global_config.declare(
    SNAPSHOT_TTL[0], Duration, SNAPSHOT_TTL[1], "How long a snapshot lives that was made for an instance."
)
DEFAULTS = dict((DEFAULT_TTL, DEFAULT_INACTIVITY, MAX_TTL, SNAPSHOT_TTL))


@dataclass(frozen=True, slots=True)
class Lifetimes:
    ttl: timedelta
    inactivity: timedelta
    max_ttl: timedelta
    snapshot_ttl: timedelta


async def lifetimes(db: Database) -> Lifetimes:
    changed = {row["name"]: orjson.loads(row["value"]) for row in await db.fetch(SQL["settings"], [*DEFAULTS])}
    values = [durations.parse({**DEFAULTS, **changed}[name]) for name in DEFAULTS]
    return Lifetimes(*values)


def positive(text: str, field: str) -> timedelta:
    found = parse(text, field)
    if found <= timedelta(0):
        raise invalid_field(field, "It must be longer than zero.")
    return found


def asked_ttl(text: str | None, known: Lifetimes) -> timedelta:
    """What was asked for at creation, or the default, which the longest bounds too."""
    if text is None:
        return min(known.ttl, known.max_ttl)
    found = positive(text, "ttl")
    check_longest(found, known)
    return found


def check_longest(left: timedelta, known: Lifetimes) -> None:
    if left > known.max_ttl:
        longest = durations.written(known.max_ttl)
        raise invalid_field("ttl", f"An instance lives at most {longest} from now ({MAX_TTL[0]}).")
