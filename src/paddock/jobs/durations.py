"""Durations as people write them: ISO 8601, or the short form 15m, 1h, 7d."""

import re
from datetime import timedelta

SHORT = re.compile(r"(\d{1,9})(s|m|h|d|w)\Z")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
ISO = re.compile(r"P(?:(\d{1,6})W|(?:(\d{1,6})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,6})?)S)?)?)\Z")


def parse(text: str) -> timedelta:
    """ValueError with a sentence for what is none."""
    short = SHORT.match(text)
    if short is not None:
        try:
            return timedelta(seconds=int(short[1]) * UNITS[short[2]])
        except OverflowError:
            raise ValueError("That is too long.") from None
    found = ISO.match(text)
    if found is None or not any(found.groups()):
        raise ValueError("Write a duration like 15m, 1h, 7d or PT15M.")
    weeks, days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)


def written(length: timedelta) -> str:
    """As people write it: PT24H and P7D, not PT86400S."""
    seconds = int(length.total_seconds())
    if seconds > UNITS["d"] and seconds % UNITS["d"] == 0:
        return f"P{seconds // UNITS['d']}D"
    for letter in "hm":
        if seconds % UNITS[letter] == 0:
            return f"PT{seconds // UNITS[letter]}{letter.upper()}"
    return f"PT{seconds}S"


# Longer than this nothing is put off.
LONGEST_DELAY = timedelta(days=366)


def bounded_delay(seconds: float) -> timedelta:
    return timedelta(seconds=min(max(seconds, 0.0), LONGEST_DELAY.total_seconds()))
