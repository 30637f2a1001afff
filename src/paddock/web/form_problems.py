"""What is wrong with a form that was sent, by field: whatever checked it, a model, a service or the API's own rules."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from paddock.api.errors import ApiError, invalid
from paddock.field_errors import field_errors
from paddock.jobs.errors import Refused

Request = TypeVar("Request", bound=BaseModel)
# Codes that are about one field of a form, though they do not say so.
ABOUT = {
    "missing_use_case_id": "role",
    "engine_role_not_allowed": "role",
    "engine_not_allowed": "engine",
    "destination_not_allowed": "destination",
    "name_taken": "name",
}


def as_refusal(error: ValidationError) -> ApiError:
    return invalid([{"field": found.field, "message": found.sentence} for found in field_errors(error)])


def validated(model: type[Request], body: Mapping[str, Any], wrong: Mapping[str, str]) -> Request:
    """The request that a form is. It raises with all at once: `wrong` is what the form itself found, by field, and to it
    comes what the model finds in the other fields."""
    found = dict(wrong)
    try:
        request = model.model_validate(body)
    except ValidationError as error:
        for place, message in field_problems(as_refusal(error)):
            # What the model says of no field alone may only follow from what the form found.
            if place or not wrong:
                found.setdefault(place, message)
    else:
        if not wrong:
            return request
    raise invalid([{"field": place, "message": message} for place, message in found.items()])


def status_of(error: ApiError | Refused) -> int:
    return error.status_code if isinstance(error, ApiError) else error.status


def named_fields(error: ApiError | Refused) -> list[tuple[str, str]]:
    """(field, sentence) for what an error says of single fields."""
    fields: Any = error.details.get("fields") or ()
    return [(str(item["field"]), str(item["message"])) for item in fields]


def field_problems(error: ApiError | Refused) -> list[tuple[str, str]]:
    """(field, sentence); the field is empty for what is about none."""
    if named := named_fields(error):
        return named
    words = error.message if error.hint is None else f"{error.message} {error.hint}"
    return [(ABOUT.get(error.code, ""), words)]


def by_field(error: ApiError | Refused, known: Mapping[str, str] | frozenset[str]) -> dict[str, str]:
    """The first sentence for each field of the form; what names none of them stands at the top."""
    problems: dict[str, str] = {}
    for place, message in field_problems(error):
        name = place.removeprefix("options.").partition(".")[0]
        field = name if name in known else ""
        problems.setdefault(field, f"{place}: {message}" if place and not field else message)
    return problems
