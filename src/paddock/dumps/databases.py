"""Whose databases are whose: those that `[dumps.databases.X]` gives to an owner, and those that a token was granted.

Operators may have them all. To others a database that is not theirs does not exist, nor do its dumps.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paddock.api.tokens import Caller
from paddock.config import Config
from paddock.dumps.kinds import PREFIX
from paddock.dumps.settings import DumpSettings


def may_dump(config: Config, caller: Caller, database: str) -> bool:
    return caller.operator or caller.may_use("databases", database) or caller.owner in _owners(config, database)


def databases_of(config: Config, caller: Caller) -> Sequence[str]:
    return [name for name in sorted(config.of(DumpSettings).databases) if may_dump(config, caller, name)]


def granted(config: Config, caller: Caller) -> Mapping[str, Iterable[str]]:
    """What may be used in a job's payload, besides what the token says."""
    return {"databases": databases_of(config, caller)}


def may_see_kind(config: Config, caller: Caller, kind: str) -> bool:
    """A database's own kind tells its name."""
    return not kind.startswith(PREFIX) or may_dump(config, caller, kind.removeprefix(PREFIX))


def cors_origins(config: Config) -> Sequence[str]:
    return config.of(DumpSettings).cors_origins


def _owners(config: Config, database: str) -> Sequence[str]:
    settings: Mapping[str, Any] = config.of(DumpSettings).databases.get(database, {})
    owners = settings.get("owners", ())
    return owners if isinstance(owners, list | tuple) else ()
