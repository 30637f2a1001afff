"""Times and durations as people type and read them in a terminal; `amounts` has lengths, sizes and counts."""

from datetime import UTC, datetime, timedelta

from paddock.amounts import span
from paddock.cli.errors import wrong_usage


def moment(value: object) -> datetime | None:
    """An RFC 3339 time of the API."""
    if isinstance(value, datetime):
        return value
    return datetime.fromisoformat(value) if isinstance(value, str) and value else None


def now() -> datetime:
    return datetime.now(UTC)


def ago(value: object, at: datetime | None = None) -> str:
    """`3 min ago`, `in 20 s`; a dash where there is no time."""
    when = moment(value)
    if when is None:
        return "-"
    seconds = ((at or now()) - when).total_seconds()
    return f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"


def clock_time(value: object) -> str:
    when = moment(value)
    return "-" if when is None else when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def duration(value: str) -> timedelta:
    """`90`, `90s`, `5m`, `2h`, `1d`, or ISO 8601 in the units a duration can have: `PT90S`, `P1DT2H`."""
    import re

    def length(**amounts: float) -> timedelta:
        try:
            return timedelta(**amounts)
        except OverflowError:
            raise ValueError(f"'{value}' is longer than a duration can be.") from None

    plain = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)?", value.strip())
    if plain:
        factor = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}[plain[2] or "s"]
        return length(seconds=float(plain[1]) * factor)
    iso = re.fullmatch(
        r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", value.strip().upper()
    )
    if not iso or not any(iso.groups()):
        raise ValueError(f"'{value}' is no duration: write 90s, 5m, 2h, 1d or PT90S.")
    weeks, days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
    return length(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)


def point_in_time(value: str, *, ahead: bool = False) -> str:
    """A time, UTC unless it says otherwise; a duration counts from now."""
    try:
        if "-" in value or ":" in value:
            time = datetime.fromisoformat(value.strip())
            return (time if time.tzinfo else time.replace(tzinfo=UTC)).isoformat()
        length = duration(value)
        return (now() + length if ahead else now() - length).isoformat()
    except (ValueError, OverflowError):
        raise wrong_usage(
            f"'{value}' is no time and no duration: write 2026-11-15, 2026-11-15T09:00, 90s, 2h or 7d."
        ) from None


def iso(value: timedelta) -> str:
    return f"PT{value.total_seconds():.12g}S"
