"""Paths of capabilities whose clients were written for another server, with its own words for errors."""

from functools import cache

from paddock.capability import capabilities


@cache
def prefixes() -> tuple[str, ...]:
    return tuple(capability.foreign_paths for capability in capabilities() if capability.foreign_paths is not None)


def is_foreign(path: str) -> bool:
    return path.startswith(prefixes())
