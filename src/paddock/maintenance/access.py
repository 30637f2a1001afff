"""Whose catalogs are whose: those that `[catalogs.X]` gives to an owner, and those that a token was granted, whole
(`catalog:X`) or one database of it (`catalog:X.db`).

Operators may have them all. To others a table that is not theirs does not exist.
"""

from collections.abc import Sequence

from paddock.api.tokens import EVERYTHING, Caller
from paddock.config import Config
from paddock.maintenance.catalog_settings import CatalogSettings, catalogs_from
from paddock.maintenance.model import MAINTENANCE_PREFIX, TABLES_PREFIX, TableName

PREFIX = "catalog:"


def has_catalog(settings: CatalogSettings, caller: Caller, catalog: str) -> bool:
    """All of it."""
    return caller.operator or caller.owner in settings.owners or caller.may_use("databases", f"{PREFIX}{catalog}")


def may_have(config: Config, caller: Caller, table: TableName) -> bool:
    settings = catalogs_from(config).get(table.catalog)
    if settings is None:
        return False
    return has_catalog(settings, caller, table.catalog) or caller.may_use(
        "databases", f"{PREFIX}{table.catalog}.{table.database}"
    )


def catalogs_of(config: Config, caller: Caller) -> Sequence[str]:
    """Those of which they may have something."""
    granted = caller.granted("databases")
    return [
        name
        for name, settings in sorted(catalogs_from(config).items())
        if has_catalog(settings, caller, name) or any(each.startswith(f"{PREFIX}{name}.") for each in granted)
    ]


def visible(config: Config, caller: Caller) -> tuple[list[str] | None, list[str] | None]:
    """Whole catalogs, and databases as catalog.db; None in both: everything."""
    granted = caller.granted("databases")
    if caller.operator or EVERYTHING in granted:
        return None, None
    whole = [name for name, settings in catalogs_from(config).items() if has_catalog(settings, caller, name)]
    return whole, [each.removeprefix(PREFIX) for each in granted if each.startswith(PREFIX)]


def may_see_kind(config: Config, caller: Caller, kind: str) -> bool:
    """A catalog's kinds tell its name."""
    for prefix in (MAINTENANCE_PREFIX, TABLES_PREFIX):
        if kind.startswith(prefix):
            return kind.removeprefix(prefix) in catalogs_of(config, caller)
    return True
