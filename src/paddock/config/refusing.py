"""Sentences about a setting that is wrong, with no secret in them."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from pydantic import SecretStr

from paddock.field_errors import clause_of

if TYPE_CHECKING:
    from paddock.field_errors import FieldError


class ConfigError(Exception):
    """One sentence that names what is wrong and where it was set."""

    code = "bad_config"


def display_value(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, SecretStr):
        return "********"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, dict):
        return ",".join(f"{key}={inner}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    from paddock.log import scrub  # here: only errors and `config show` need it

    return scrub(str(value), limit=200)


def bad_table(table: str, errors: Iterable["FieldError"], not_fields: Collection[str] = frozenset()) -> ConfigError:
    """Everything that is wrong with one table of `paddock.toml`. `not_fields` are names of types, which pydantic puts
    into the place of an error."""
    sentences = []
    for path, sentence in errors:
        where = ".".join([table, *(part for part in path if part not in not_fields)])
        sentences.append(f"{where} in paddock.toml has a bad value: {clause_of(sentence)}.")
    return ConfigError(" ".join(sentences))


def nearest(word: str, known: Iterable[str], prefix: str = "") -> str:
    """The end of the sentence: a question where there is a name to suggest. What all share says nothing."""
    from difflib import get_close_matches  # here: only a mistake needs it

    written = {name.removeprefix(prefix).lower(): name for name in sorted(known)}
    word = word.lower()
    match = [name for name in written if name.startswith(f"{word}_")] or get_close_matches(word, written, n=1)
    return f"; did you mean {written[match[0]]}?" if match else "."


def why(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror or type(error).__name__})"
    return "is not UTF-8 text"
