"""What a schedule of a thing would run: the form is opened for an export, say, and has it filled in.

Each capability says it of its own things (`Capability.schedulable`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from paddock.api.errors import not_found
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.capability import capabilities, leaving_out, load
from paddock.jobs.model import JsonObject

LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Planned:
    """`kind` and `payload` of each run, a name for the schedule, and in words what it runs: ("Query", "SELECT …"). `note` is
    what to think of before."""

    kind: str
    payload: JsonObject
    name: str
    words: Sequence[tuple[str, str]]
    note: str = ""


async def planned_of(plane: ControlPlane, caller: Caller, of: str) -> Planned | None:
    """None: the form was opened for nothing. What it names and what the caller may not see look alike."""
    what, _, id = of.partition(":")
    for capability in capabilities():
        if what in capability.schedulable:
            with leaving_out(capability):
                planned = load(capability.schedulable[what])
            found: Planned = await planned(plane, caller, id)
            return found
    if of:
        raise not_found("thing to schedule")
    return None


def name_of(*words: str) -> str:
    """A name that a schedule may have, from what a person calls a thing."""
    text = re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")
    return text[:LONGEST_NAME].rstrip("-")
