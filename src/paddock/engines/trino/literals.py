"""Values as Trino's SQL writes them."""

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from paddock.engines.children.quoting import quoted
from paddock.engines.engine import QueryRefused


def quoted_name(*parts: str) -> str:
    return ".".join(map(quoted, parts))


def text(value: str) -> str:
    # A backslash means nothing to Trino: the quote is all there is to escape.
    return "'" + value.replace("'", "''") + "'"


def literal(name: str, value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return text(value)
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return _double(value)
    if isinstance(value, Decimal) and value.is_finite():
        return f"DECIMAL '{value:f}'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, UUID):
        return f"UUID '{value}'"
    if isinstance(value, (datetime, date, time)):
        return _moment(value)
    if isinstance(value, (list, tuple)):
        return f"ARRAY[{', '.join(literal(name, item) for item in value)}]"
    raise QueryRefused(
        f"The value of :{name} is a {type(value).__name__}, which Trino's SQL has no way to write.",
        code="parameter_type",
        hint="Use text, a number, true or false, null, a date or time, or a list of these.",
    )


def _integer(value: int) -> str:
    return str(value) if -(2**63) < value < 2**63 else f"DECIMAL '{value}'"


def _double(value: float) -> str:
    if math.isnan(value):
        return "nan()"
    if math.isinf(value):
        return "infinity()" if value > 0 else "-infinity()"
    return f"DOUBLE '{value!r}'"


def _moment(value: datetime | date | time) -> str:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return f"TIMESTAMP '{value.isoformat(' ', 'microseconds')}'"
        return f"TIMESTAMP '{value.astimezone(UTC).replace(tzinfo=None).isoformat(' ', 'microseconds')} UTC'"
    if isinstance(value, time):
        return f"TIME '{value.isoformat('microseconds')}'"
    return f"DATE '{value.isoformat()}'"
