"""What is wrong with a field, in our words: pydantic's are for programmers, and quote what was sent.

A validator of ours raises `ValueError` with a sentence, and that sentence is kept. Every other error has a type, and each
type its sentence here; a type that a later pydantic adds says only that the value does not fit.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pydantic import ValidationError

MOST = 100
LONGEST = 300
# pydantic says these in front of what a validator raised.
PREFIXES = ("Value error, ", "Assertion failed, ")

# A default that could not be made because of another field; that one is told.
CONSEQUENCES = frozenset({"default_factory_not_called"})

TEXT = "It should be text."
NUMBER = "It should be a number."
WHOLE = "It should be a whole number."
YES_OR_NO = "It should be true or false."
LIST = "It should be a list."
OBJECT = "It should be an object with named fields."
DATE = "It should be a date like 2026-01-31."
TIME = "It should be a time of day like 08:30:00."
MOMENT = "It should be a date and time like 2026-01-31T08:30:00Z."
DURATION = "It should be a duration like PT1H30M."
URL = "It should be a URL that begins with http:// or https://."
ID = "It should be an id like 0198c0de-0000-7000-8000-000000000000."
MISFIT = "It does not fit here."

# By pydantic's type of error; the braces are its context.
SENTENCES: Mapping[str, str] = {
    "missing": "It is missing.",
    "extra_forbidden": "There is no such field.",
    "none_required": "It should be null or left out.",
    "json_invalid": "It is not valid JSON.",
    "json_type": "It should be JSON.",
    **dict.fromkeys(["string_type", "string_unicode", "bytes_type", "bytes_invalid_encoding"], TEXT),
    "string_not_ascii": "It should have ASCII characters only.",
    "string_too_short": "It should have at least {min_length} characters.",
    "string_too_long": "It should have at most {max_length} characters.",
    "bytes_too_short": "It should have at least {min_length} bytes.",
    "bytes_too_long": "It should have at most {max_length} bytes.",
    "string_pattern_mismatch": "It should match the pattern {pattern}.",
    "too_short": "It should have at least {min_length} items.",
    "too_long": "It should have at most {max_length} items.",
    "greater_than": "It should be more than {gt}.",
    "greater_than_equal": "It should be at least {ge}.",
    "less_than": "It should be less than {lt}.",
    "less_than_equal": "It should be at most {le}.",
    "multiple_of": "It should be a multiple of {multiple_of}.",
    "finite_number": "It should be a number that is not infinite.",
    **dict.fromkeys(["int_type", "int_parsing", "int_from_float"], WHOLE),
    "int_parsing_size": "It should be a whole number with fewer digits.",
    **dict.fromkeys(["float_type", "float_parsing", "decimal_type", "decimal_parsing"], NUMBER),
    **dict.fromkeys(["fraction_type", "fraction_parsing", "complex_type", "complex_str_parsing"], NUMBER),
    **dict.fromkeys(["decimal_max_digits", "decimal_whole_digits"], "It should have fewer digits."),
    "decimal_max_places": "It should have fewer digits after the point.",
    **dict.fromkeys(["bool_type", "bool_parsing"], YES_OR_NO),
    "literal_error": "It should be {expected}.",
    "enum": "It should be {expected}.",
    "union_tag_invalid": "Its {discriminator} should be one of {expected_tags}.",
    "union_tag_not_found": "Its {discriminator} is missing.",
    **dict.fromkeys(
        ["list_type", "tuple_type", "set_type", "frozen_set_type", "deque_type", "iterable_type", "named_tuple_type"],
        LIST,
    ),
    **dict.fromkeys(
        ["dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type", "dataclass_exact_type"],
        OBJECT,
    ),
    **dict.fromkeys(["frozen_dict_type", "ordered_dict_type", "counter_type"], OBJECT),
    "invalid_key": "Its keys should be text.",
    **dict.fromkeys(["date_type", "date_parsing", "date_from_datetime_parsing", "date_from_datetime_inexact"], DATE),
    "date_past": "It should be a date in the past.",
    "date_future": "It should be a date in the future.",
    **dict.fromkeys(["time_type", "time_parsing"], TIME),
    **dict.fromkeys(
        ["datetime_type", "datetime_parsing", "datetime_object_invalid", "datetime_from_date_parsing"], MOMENT
    ),
    "datetime_past": "It should be a time in the past.",
    "datetime_future": "It should be a time in the future.",
    **dict.fromkeys(["timezone_aware", "timezone_offset"], "It should have a time zone, like 2026-01-31T08:30:00Z."),
    "timezone_naive": "It should have no time zone.",
    **dict.fromkeys(["time_delta_type", "time_delta_parsing"], DURATION),
    **dict.fromkeys(["url_type", "url_parsing", "url_syntax_violation", "url_scheme"], URL),
    "url_too_long": "It should be a shorter URL.",
    **dict.fromkeys(["uuid_type", "uuid_parsing", "uuid_version"], ID),
    "recursion_loop": "It contains itself.",
    "recursion_depth_exceeded": "It is nested too deep.",
}


class FieldError(NamedTuple):
    path: tuple[str, ...]
    sentence: str

    @property
    def field(self) -> str:
        return ".".join(self.path)[:200]


def field_errors(invalid: "ValidationError") -> list[FieldError]:
    """All of them."""
    return listed(invalid.errors(include_url=False, include_input=False))


def listed(errors: Iterable[Mapping[str, Any]]) -> list[FieldError]:
    """As `field_errors`, for what FastAPI collected. A value that fits none of several types is told once for each place."""
    wrong = [error for error in errors if error["type"] not in CONSEQUENCES]
    found = [FieldError(_path(error["loc"]), sentence_of(error)) for error in wrong]
    return list(dict.fromkeys(found))[:MOST]


def sentence_of(error: Mapping[str, Any]) -> str:
    if error["type"] in ("value_error", "assertion_error"):
        from paddock.log import scrub  # here: the command line loads this module at every start

        text = str(error["msg"])
        for prefix in PREFIXES:
            text = text.removeprefix(prefix)
        return _whole(scrub(text, limit=LONGEST))
    template = SENTENCES.get(error["type"], MISFIT)
    context = error.get("ctx", {})
    if error["type"] in ("string_too_short", "too_short") and context.get("min_length") == 1:
        return "It should not be empty."
    if any(context.get(name) == 1 for name in ("max_length", "min_length")):
        template = template.replace("characters", "character").replace("items", "item").replace("bytes", "byte")
    return template.format_map({name: _as_text(value) for name, value in context.items()})


def clause_of(sentence: str) -> str:
    """The sentence after a colon, without its full stop."""
    first, space, rest = sentence.partition(" ")
    # A name that stands first, like AWS_REGION, is no word of ours.
    first = first.lower() if first.isalpha() and first.istitle() else first
    return f"{first}{space}{rest}".removesuffix(".")


def _as_text(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def _path(location: Iterable[str | int]) -> tuple[str, ...]:
    """Without the names that pydantic gives to types inside of a union, such as `list[str]`."""
    return tuple(
        str(part) for part in location if not (isinstance(part, str) and ("[" in part or "constrained-" in part))
    )


def _whole(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
