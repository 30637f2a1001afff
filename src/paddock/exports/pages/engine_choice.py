"""The engines a person may choose from, and under which roles: what the forms of exports and mappings offer."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from paddock.api.errors import invalid_field
from paddock.api.tokens import EVERYTHING, Caller
from paddock.config import Config
from paddock.engines.registry import settings_from
from paddock.engines.settings import EngineSettings, TrinoSettings
from paddock.exports.service import ROLE


@dataclass(frozen=True, slots=True)
class Choice:
    name: str
    type: str
    description: str
    takes_role: bool
    requires_role: bool
    unload: bool
    # Where names without a catalog or schema are looked for.
    default: str | None


def engines_of(config: Config, caller: Caller) -> list[Choice]:
    known = settings_from(config)
    return [_choice(name, known[name]) for name in sorted(known) if caller.may_use("engines", name)]


def _choice(name: str, settings: EngineSettings) -> Choice:
    trino = settings if isinstance(settings, TrinoSettings) else None
    parts = [] if trino is None else [part for part in (trino.catalog, trino.schema_) if part]
    return Choice(
        name=name,
        type=settings.type,
        description=settings.description,
        takes_role=trino is not None,
        requires_role=settings.requires_role,
        unload=trino is not None and trino.can_unload,
        default=".".join(parts) or None,
    )


def roles_of(caller: Caller) -> list[str] | None:
    """None: any, so it is typed and not chosen."""
    granted = caller.granted("engine_roles")
    return None if EVERYTHING in granted else sorted(granted)


def _chosen(engines: Sequence[Choice], engine: str) -> Choice | None:
    return next((choice for choice in engines if choice.name == engine or (not engine and len(engines) == 1)), None)


def mode_for(engines: Sequence[Choice], engine: str, text: str) -> str:
    """Who is to write: nothing is said to an engine that cannot, whatever stands in a field that is hidden then."""
    choice = _chosen(engines, engine)
    return text if choice is not None and choice.unload else ""


def role_for(engines: Sequence[Choice], engine: str, text: str) -> str | None:
    """The role to send: none to an engine that knows no roles, whatever stands in a field that is hidden then."""
    choice = _chosen(engines, engine)
    if not text or choice is None or not choice.takes_role:
        return None
    if not re.match(ROLE, text):
        raise invalid_field("role", "A role has letters, digits, '_', '.' and '-', at most 128.")
    return text
