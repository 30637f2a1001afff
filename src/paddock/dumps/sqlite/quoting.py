"""Names and values as SQLite's own words."""

import string

_FOLD = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def hexed(text: bytes, codec: str) -> bytes:
    """For text, in UTF-8, that a loader must not see as it is; spelled as a database of that encoding has it."""
    data = text if codec == "utf-8" else text.decode().encode(codec)
    return b"CAST(X'" + data.hex().encode() + b"' AS TEXT)"


def fold(text: str) -> str:
    """Names that SQLite takes for the same: it knows the case of ASCII letters only."""
    return text.translate(_FOLD)
