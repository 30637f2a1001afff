"""Durations at the edge: ISO 8601 out; what `paddock.jobs.durations` reads in."""

from datetime import timedelta

from paddock.api.errors import invalid_field
from paddock.jobs import durations


def iso(duration: timedelta | None) -> str | None:
    return None if duration is None else f"PT{duration.total_seconds():.6f}".rstrip("0").rstrip(".") + "S"


def parse(text: str, field: str) -> timedelta:
    try:
        return durations.parse(text)
    except ValueError as problem:
        raise invalid_field(field, str(problem)) from None
