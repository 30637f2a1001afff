"""What the button "Schedule…" of a dump fills in."""

from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.dumps.pages import dump_words
from paddock.dumps.request import DumpRequest
from paddock.dumps.service import visible_dump
from paddock.jobs.model import JsonObject
from paddock.web.planning import Planned, name_of

# How many stay, where nobody says: a week of nights.
KEEP_LAST = 7


async def of_dump(plane: ControlPlane, caller: Caller, id: str) -> Planned:
    dump = await visible_dump(plane, caller, id)
    asked = DumpRequest.model_validate(dump.request)
    payload: JsonObject = {"database": dump.database, "format": dump.format, "keepLast": KEEP_LAST}
    options = asked.options.model_dump(mode="json", exclude_defaults=True)
    return Planned(
        "scheduled_dump",
        {**payload, "options": options} if options else payload,
        name_of(dump.database),
        [
            ("Dumps", f"the database {dump.database}{_part(dump_words.part_of(dump))}"),
            ("As", dump_words.format_of(dump)),
            ("Keeps", f"its newest {KEEP_LAST} completed dumps: `keepLast` below"),
        ],
    )


def _part(words: str) -> str:
    return f", {words}" if words else ""
