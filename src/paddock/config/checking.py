"""What is wrong with a value, or with two that do not fit together."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError

from paddock.config.model import SECRETS, Config
from paddock.config.refusing import ConfigError, shown
from paddock.config.sources import Given


def check_relations(config: Config, given: Mapping[str, Given]) -> None:
    def told(name: str) -> str:
        where = given[name].called if name in given else f"{name}, by default"
        return f"{where} ({shown(getattr(config, name))})"

    if config.lease_seconds < 3 * config.beat_seconds:
        raise ConfigError(
            f"{told('lease_seconds')} must be at least three times {told('beat_seconds')},"
            " or one lost beat ends a healthy worker's session."
        )
    taken: dict[int, str] = {}
    for name in ("port", "internal_port", "metrics_port"):
        port = getattr(config, name)
        if port and port in taken:
            first = told(taken[port])
            raise ConfigError(f"{told(name)} must differ from {first}: leave it out to answer on that port.")
        if port:
            taken[port] = name
    _check_places(config)


def _check_places(config: Config) -> None:
    """A place has one name: exports take turns at `lake:orders`, and would not know that it is `sales:orders` too."""
    places = [("object_store", config.object_store)] if config.has_store else []
    for name, table in config.destinations.items():
        if isinstance(url := table.get("url"), str):
            places.append((f"destinations.{name}", url))
    for at, (name, url) in enumerate(places):
        for other, its_url in places[:at]:
            if overlap(url, its_url):
                raise ConfigError(
                    f"{name} and {other} must be places of their own: one is the other, or a folder inside it."
                )


def overlap(one: str, other: str) -> bool:
    """Whether one of these stores is the other, or a folder inside it."""
    return all(mine == theirs for mine, theirs in zip(_place(one), _place(other), strict=False))


def _place(url: str) -> tuple[str, ...]:
    """Equal for equal places; that of a folder inside begins with it."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return ("file", *Path(unquote(parts.path) if parts.scheme else url).resolve().parts)
    return (parts.scheme, parts.netloc, parts.query, *(folder for folder in parts.path.split("/") if folder))


def first_error(invalid: ValidationError, given: Mapping[str, Given]) -> ConfigError:
    error = invalid.errors(include_url=False, include_context=False)[0]
    name, *inside = (str(part) for part in error["loc"])
    why = error["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    item = given.get(name)
    called = item.called if item else name
    if item and name not in SECRETS:
        called += f" ({shown(item.value)})"
    at = f" at {'.'.join(inside)}" if inside else ""
    return ConfigError(f"{called} has a bad value{at}: {why[:1].lower()}{why[1:]}.")
