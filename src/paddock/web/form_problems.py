"""What is wrong with a form that was sent, by field: whatever checked it, a model, a service or the API's own rules."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from paddock.api.errors import ApiError, invalid
from paddock.jobs.errors import Refused
from paddock.log import scrub

MOST = 100
LONGEST = 300
# Codes that are about one field of a form, though they do not say so.
ABOUT = {
    "missing_use_case_id": "role",
    "engine_role_not_allowed": "role",
    "engine_not_allowed": "engine",
    "destination_not_allowed": "destination",
    "name_taken": "name",
}


def as_refusal(error: ValidationError) -> ApiError:
    return invalid(
        [
            {"field": ".".join(map(str, found["loc"])), "message": _sentence(str(found["msg"]))}
            for found in error.errors(include_url=False, include_input=False, include_context=False)[:MOST]
        ]
    )


def _sentence(message: str) -> str:
    """pydantic's words, without what they begin with for programmers; they may quote what was typed."""
    text = scrub(message.removeprefix("Value error, "), limit=LONGEST)
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def status_of(error: ApiError | Refused) -> int:
    return error.status_code if isinstance(error, ApiError) else error.status


def told(error: ApiError | Refused) -> list[tuple[str, str]]:
    """(field, sentence); the field is empty for what is about none."""
    fields: Any = error.details.get("fields")
    if fields:
        return [(str(item["field"]), str(item["message"])) for item in fields]
    words = error.message if error.hint is None else f"{error.message} {error.hint}"
    return [(ABOUT.get(error.code, ""), words)]


def by_field(error: ApiError | Refused, known: Mapping[str, str] | frozenset[str]) -> dict[str, str]:
    """The first sentence for each field of the form; what names none of them stands at the top."""
    problems: dict[str, str] = {}
    for place, message in told(error):
        name = place.removeprefix("options.").partition(".")[0]
        field = name if name in known else ""
        problems.setdefault(field, f"{place}: {message}" if place and not field else message)
    return problems
