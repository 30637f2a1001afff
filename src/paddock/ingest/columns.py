"""Columns of published files that a source declares: taken from `data` by name, each with a type that a mapping may have."""

import re

from paddock.declared_types import Type, parse

# The columns that every published file has; a declared one may not take their place.
FIXED = ("stream", "id", "data", "features", "run_id", "batch", "position", "fetched_at")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def column_type(name: str, text: str) -> Type:
    """Raises ValueError with a sentence."""
    if NAME.fullmatch(name) is None or name.lower() in FIXED:
        raise ValueError(f"'{name[:100]}' cannot be a column: letters, digits and _, and none of {', '.join(FIXED)}")
    return parse(text)
