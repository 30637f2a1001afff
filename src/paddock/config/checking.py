"""What is wrong with a value, or with two that do not fit together."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError

from paddock.config.model import Config
from paddock.config.refusing import ConfigError, display_value
from paddock.config.settings import KnownSetting
from paddock.config.sources import Given
from paddock.field_errors import FieldError, clause_of, field_errors


def check_relations(config: Config, given: Mapping[str, Given]) -> None:
    def described(name: str) -> str:
        where = given[name].called if name in given else f"{name}, by default"
        return f"{where} ({display_value(getattr(config, name))})"

    if config.lease_seconds < 3 * config.beat_seconds:
        raise ConfigError(
            f"{described('lease_seconds')} must be at least three times {described('beat_seconds')},"
            " or one lost beat ends a healthy worker's session."
        )
    taken: dict[int, str] = {}
    for name in ("port", "internal_port", "metrics_port"):
        port = getattr(config, name)
        if port and port in taken:
            first = described(taken[port])
            raise ConfigError(f"{described(name)} must differ from {first}: leave it out to answer on that port.")
        if port:
            taken[port] = name


def overlap(one: str, other: str) -> bool:
    """Whether one of these stores is the other, or a folder inside it."""
    return all(mine == theirs for mine, theirs in zip(_place(one), _place(other), strict=False))


def _place(url: str) -> tuple[str, ...]:
    """Equal for equal places; that of a folder inside begins with it."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return ("file", *Path(unquote(parts.path) if parts.scheme else url).resolve().parts)
    return (parts.scheme, parts.netloc, parts.query, *(folder for folder in parts.path.split("/") if folder))


def sentences(invalid: ValidationError, settings: Mapping[str, KnownSetting], given: Mapping[str, Given]) -> list[str]:
    """What is wrong with the values of one model, whose fields are these settings."""
    return [_sentence(error, settings, given) for error in field_errors(invalid)]


def _sentence(found: FieldError, settings: Mapping[str, KnownSetting], given: Mapping[str, Given]) -> str:
    if not found.path:  # a capability's own check of several fields
        tables = {f"[{setting.table}]" for setting in settings.values() if setting.table}
        return f"{', '.join(tables)} has a bad value: {clause_of(found.sentence)}."
    field, *inside = found.path
    setting = settings.get(field)
    name = setting.name if setting else field
    item = given.get(name)
    called = item.called if item else name
    if item and not (setting and setting.secret):
        called += f" ({display_value(item.value)})"
    at = f" at {'.'.join(inside)}" if inside else ""
    return f"{called} has a bad value{at}: {clause_of(found.sentence)}."
