"""Destinations as `paddock.toml` names them: `[destinations.lake]` and `url = "s3://bucket/folder"`.

A request says `lake:reports/{date}`; the address and its credentials (environment or secret files) stay here.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from paddock.config import Config, bad_table
from paddock.exports.settings import ExportSettings
from paddock.field_errors import field_errors

if TYPE_CHECKING:
    from paddock.storage.store import Store

_SEGMENT = re.compile(r"[A-Za-z0-9_.=+-]{1,200}\Z")
PLACEHOLDERS = {"date": "%Y-%m-%d", "year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "time": "%H%M%S"}


class DestinationSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    description: str = ""


def settings_of(name: str, table: Mapping[str, Any]) -> DestinationSettings:
    try:
        return DestinationSettings.model_validate(table)
    except ValidationError as invalid:
        raise bad_table(f"destinations.{name}", field_errors(invalid)) from None


def check_tables(config: Config) -> None:
    for name, table in config.of(ExportSettings).destinations.items():
        settings_of(name, table)


def open_destination(name: str, config: Config) -> "Store":
    from paddock.storage.store import open_store

    return open_store(settings_of(name, config.of(ExportSettings).destinations[name]).url)


def parse(text: str, at: datetime) -> tuple[str, str]:
    """`lake:reports/{date}` -> ("lake", "reports/2026-11-16"): each placeholder filled in, each segment plain text."""
    name, colon, prefix = text.partition(":")
    if not colon or not name:
        raise ValueError("a destination is NAME:PREFIX, with a name from the server's configuration")
    filled = re.sub(r"\{([a-z]+)\}", lambda match: _filled(match[1], at), prefix.strip("/"))
    segments = filled.split("/")
    for segment in segments:
        if not _SEGMENT.match(segment) or set(segment) == {"."} or segment.startswith("_"):
            raise ValueError(
                f"{segment!r} is no folder of a destination: use letters, digits and _ . = + -, not first an underscore"
            )
    return name, "/".join(segments)


def _filled(word: str, at: datetime) -> str:
    if word not in PLACEHOLDERS:
        raise ValueError(f"{{{word}}} is no placeholder; there are {', '.join(PLACEHOLDERS)}")
    return at.strftime(PLACEHOLDERS[word])
