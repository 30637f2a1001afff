"""A finish as it goes to SQL: what the worker sent, checked, with everything in storable form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from paddock.jobs import wire
from paddock.jobs.ending import Ending
from paddock.jobs.fencing import EXHAUSTED, INVALID_RESULT
from paddock.jobs.model import MAX_ERROR_MESSAGE, MAX_RESULT_BYTES, MAX_TRACEBACK
from paddock.jobs.saving import checked_saved
from paddock.jobs.values import InvalidValue, checked_json, clean_text

MAX_EVENT_BYTES = 64 * 1024
MAX_NAME = 500


# Made for every finish, and freezing a dataclass doubles what making it costs.
# No query is as long as this.
MOST_PLACE = 10_000_000


@dataclass(slots=True)
class Item:
    """A finish as it goes to SQL: checked, with everything in storable form."""

    source: wire.FinishItem
    outcome: str
    result: str | None = None
    saved: str | None = None
    error: Mapping[str, Any] | None = None
    # What was wrong with the worker's item.
    invalid: str | None = None
    # Not what the worker asked for: it became this because that could not be done.
    instead: bool = False

    @property
    def plain(self) -> bool:
        """Whether it ends its job and asks for nothing beside it."""
        return self.outcome == "done" and not (self.source.events or self.source.follow_ups)


def checked(source: wire.FinishItem) -> Item:
    if source.outcome == "done" and source.result is None and source.saved is None and not source.events:
        return Item(source, "done")
    try:
        _check_events(source.events)
        return Item(
            source,
            source.outcome,
            result=checked_json(source.result, limit=MAX_RESULT_BYTES, what="result"),
            saved=checked_saved(source.saved),
            error=_error(source.error) if source.outcome in ("transient", "permanent") else None,
        )
    except InvalidValue as problem:
        error = {"code": INVALID_RESULT, "message": str(problem)}
        return Item(source, "permanent", error=error, invalid=str(problem))


def _check_events(given: Sequence[wire.Event]) -> None:
    for event in given:
        for name, text in (("type", event.type), ("subject", event.subject)):
            if not text or text != clean_text(text, MAX_NAME):
                raise InvalidValue(f"An event's {name} is text of 1 to {MAX_NAME} characters without NUL.")
        checked_json(event.data, limit=MAX_EVENT_BYTES, what="event's data")


def _error(error: wire.Error | None) -> dict[str, Any]:
    if error is None:
        return {"code": "unclassified_error", "message": "The worker gave no reason."}
    shown: dict[str, Any] = {
        "code": clean_text(error.code, 100),
        "message": clean_text(error.message, MAX_ERROR_MESSAGE),
    }
    if error.hint:
        shown["hint"] = clean_text(error.hint, MAX_ERROR_MESSAGE)
    if error.traceback:
        shown["traceback"] = clean_text(error.traceback, MAX_TRACEBACK)
    if error.mistake:
        shown["mistake"] = True
    # As the engine says it: bounded, because a page draws that far.
    places = {"line": error.line, "column": error.column}
    return shown | {name: place for name, place in places.items() if place is not None and 1 <= place <= MOST_PLACE}


def completed(item: Item) -> Ending:
    return Ending(item.source.id, item.source.attempt_id, "completed", result=item.result)


def failed(item: Item) -> Ending:
    error = item.error or {}
    return Ending(
        item.source.id,
        item.source.attempt_id,
        "failed",
        code=error.get("code"),
        message=error.get("message"),
        error=dumps(error),
    )


def exhausted(item: Item) -> Ending:
    error = item.error or {}
    message = clean_text(f"Gave up after too many failures; the last one: {error.get('message')}", MAX_ERROR_MESSAGE)
    return replace(failed(item), code=EXHAUSTED, message=message)


def dumps(value: Any) -> str:
    return orjson.dumps(value).decode()
