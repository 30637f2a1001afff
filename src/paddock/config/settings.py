"""Settings that a capability declares: a model of its own, whose fields are settings like those of the core.

`keep_days` of the capability `dumps` is PADDOCK_DUMPS_KEEP_DAYS, and `keep_days` in the table `[dumps]`. A field with
another name outside says so: `direct_export: Annotated[bool, Setting(name="direct_export")] = True`. The capability
reads its settings with `config.of(DumpSettings)`. A comment `# None: ...` at the end of a field's line says in the
reference what happens when it is not set.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, SecretStr

from paddock import capability
from paddock.config.names import OLDER_NAMES, PATHS_IN_ENGINES, TABLES

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from paddock.config.model import Config


class Settings(BaseModel):
    """The settings of one capability. Its module is imported wherever a configuration is loaded, so it imports little."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def check(self, config: "Config") -> None:
        """Raise `ConfigError` where these settings do not fit together, or do not fit to others of `config`."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is not usual about a field of `Settings`; it stands in the field's `Annotated`."""

    # The name outside, where it is not `<capability>_<field>`.
    name: str | None = None
    # Variables that older deployments set.
    older: tuple[str, ...] = ()
    # In the file it stands at the top and not in the capability's table, like `[destinations.lake]`.
    at_top: bool = False
    # Of named tables (the type `Tables`) these keys are paths, which start at the file that names them.
    paths: tuple[str, ...] = ()


class KnownSetting(NamedTuple):
    name: str  # PADDOCK_ and this in capitals is its variable
    model: type[BaseModel]
    field: str
    table: str | None  # of paddock.toml; None: it stands only at the top
    older: tuple[str, ...]
    paths: tuple[str, ...]

    @property
    def info(self) -> "FieldInfo":
        return self.model.model_fields[self.field]

    @property
    def secret(self) -> bool:
        return SecretStr in _types_in(self.info.annotation)

    @property
    def path(self) -> bool:
        return self.info.annotation in (Path, Path | None)


def _types_in(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in get_args(annotation):
        yield from _types_in(inner)


def known_settings() -> dict[str, KnownSetting]:
    """All settings by name: the core's, then those of each capability."""
    from paddock.config.model import Config  # here: it shows its values by these names

    known = {setting.name: setting for setting in _of_core(Config)}
    for owner in capability.capabilities():
        if owner.settings is not None:
            with capability.leaving_out(owner):
                known.update(_of_capability(owner, known))
    return known


def _of_core(model: type[BaseModel]) -> Iterator[KnownSetting]:
    tables = {name: table for table, names in TABLES.items() for name in names}
    for name in model.model_fields:
        older = tuple(variable for variable, setting in OLDER_NAMES.items() if setting == name)
        yield KnownSetting(name, model, name, tables.get(name), older, PATHS_IN_ENGINES if name == "engines" else ())


def _of_capability(owner: capability.Capability, known: Mapping[str, KnownSetting]) -> dict[str, KnownSetting]:
    assert owner.settings is not None
    model = capability.load(owner.settings)
    if not (isinstance(model, type) and issubclass(model, Settings)):
        raise TypeError(f"{owner.settings} is no subclass of paddock.config.Settings")
    older_names = {variable for setting in known.values() for variable in setting.older}
    found: dict[str, KnownSetting] = {}
    for field, info in model.model_fields.items():
        said = next((one for one in info.metadata if isinstance(one, Setting)), Setting())
        name = said.name or f"{owner.name}_{field}"
        if name in known or name in found:
            raise ValueError(f"there is a setting '{name}' already")
        if taken := older_names.intersection(said.older):
            raise ValueError(f"{min(taken)} is the older name of another setting")
        found[name] = KnownSetting(name, model, field, None if said.at_top else owner.name, said.older, said.paths)
    tables = tables_of([*known.values(), *found.values()])
    if taken := tables.keys() & {*known, *found}:
        raise ValueError(f"'{min(taken)}' would be a table and a setting")
    return found


def tables_of(known: Iterable[KnownSetting]) -> dict[str, list[str]]:
    """The tables of `paddock.toml`, each with the names of its settings."""
    tables = {table: list(names) for table, names in TABLES.items()}
    for setting in known:
        if setting.table is not None and setting.name not in tables.setdefault(setting.table, []):
            tables[setting.table].append(setting.name)
    return tables
