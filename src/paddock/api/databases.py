"""Whose databases are whose: those that `[dumps.databases.X]` gives to an owner, and those that a token was granted.

Operators may have them all. To others a database that is not theirs does not exist, nor do its dumps.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from paddock.api.tokens import Caller, may_use
from paddock.config import Config


def may_dump(config: Config, caller: Caller, database: str) -> bool:
    return caller.operator or may_use(caller.databases, database) or caller.owner in _owners(config, database)


def databases_of(config: Config, caller: Caller) -> Sequence[str]:
    return [name for name in sorted(config.dumps_databases) if may_dump(config, caller, name)]


def _owners(config: Config, database: str) -> Sequence[str]:
    settings: Mapping[str, Any] = config.dumps_databases.get(database, {})
    owners = settings.get("owners", ())
    return owners if isinstance(owners, list | tuple) else ()
