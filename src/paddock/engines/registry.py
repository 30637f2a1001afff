"""The engines this process knows, by name. Each is made when it is first asked for.

Other packages add types of engines through the entry-point group `paddock.engines`: the entry point's name is the type
that `paddock.toml` names, its object a function of the engine's name and its `OtherSettings` that gives an `Engine`.
"""

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError

from paddock.config import Config, ConfigError, bad_table, overlap
from paddock.engines.settings import (
    ENGINE,
    DuckdbSettings,
    EngineSettings,
    OtherSettings,
    PostgresSettings,
    SparkSettings,
    SqliteSettings,
    TrinoSettings,
)
from paddock.field_errors import field_errors
from paddock.jobs.errors import PermanentRunnerError

if TYPE_CHECKING:
    from paddock.engines.engine import Engine
    from paddock.engines.rewriting import Rewriter

DEFAULT = "duckdb"
STARBURST = "starburst"
TYPES = frozenset({"duckdb", "trino", "postgres", "sqlite"})
# Of an engine that rewrites tables and answers no queries.
SPARK = "spark"


def settings_from(config: Config) -> dict[str, EngineSettings]:
    """What the configuration names, and the embedded DuckDB, which may read the folder it was started in. A DuckDB of the
    configuration's own takes its place: the folders that it names would mean nothing beside one that reads others. So
    does the Starburst of an older deployment, whose queries name no engine."""
    tables = {name: table for name, table in config.engines.items() if table.get("type") != SPARK}
    if config.starburst_url is not None and STARBURST not in tables:
        tables[STARBURST] = _older_names(config)
    older = bool(tables) and not config.engines
    if not older and DEFAULT not in tables and all(table.get("type") != "duckdb" for table in tables.values()):
        tables[DEFAULT] = {"type": "duckdb", "roots": ["."]}
    found = {name: _checked(name, _private(config, table)) for name, table in tables.items()}
    for name, settings in found.items():
        _check_remotes(config, name, settings)
    return found


def rewriters_from(config: Config) -> dict[str, SparkSettings | TrinoSettings]:
    """The engines that rewrite tables."""
    found: dict[str, SparkSettings | TrinoSettings] = {
        name: settings for name, settings in settings_from(config).items() if isinstance(settings, TrinoSettings)
    }
    for name, table in config.engines.items():
        if table.get("type") == SPARK:
            try:
                found[name] = SparkSettings.model_validate(table)
            except ValidationError as invalid:
                raise bad_table(f"engines.{name}", field_errors(invalid)) from None
    return found


def _check_remotes(config: Config, engine: str, settings: EngineSettings) -> None:
    """The store holds everybody's files, as the folders below do."""
    for name, remote in settings.remote.items() if isinstance(settings, DuckdbSettings) else ():
        if config.has_store and overlap(remote.url, config.object_store):
            raise ConfigError(f"engines.{engine}.remote.{name} in paddock.toml is the object store, or a folder of it.")


def _private(config: Config, table: Mapping[str, object]) -> Mapping[str, object]:
    """The data folder, the store and scratch hold the database and everybody's files: no root of a query shows them."""
    if table.get("type") != "duckdb":
        return table
    hidden = table.get("hidden", [])
    store = urlsplit(config.object_store)
    own = [str(config.data), str(config.scratch), *([unquote(store.path)] if store.scheme == "file" else [])]
    return {**table, "hidden": [*(hidden if isinstance(hidden, list | tuple) else [hidden]), *own]}


def _older_names(config: Config) -> dict[str, object]:
    table: dict[str, object] = {"type": "trino", "url": config.starburst_url}
    if config.starburst_user is not None:
        table["user"] = config.starburst_user
    if config.starburst_password is not None:
        table["password_env"] = "STARBURST_PASSWORD"  # noqa: S105  the variable's name
    if config.starburst_client_tags:
        table["client_tags"] = list(config.starburst_client_tags)
    if config.starburst_source is not None:
        table["source"] = config.starburst_source
    return table


def _checked(name: str, table: Mapping[str, object]) -> EngineSettings:
    try:
        if _from_elsewhere(str(table.get("type"))) is not None:
            return OtherSettings.model_validate(table)
        return ENGINE.validate_python(table)
    except ValidationError as invalid:
        raise bad_table(f"engines.{name}", field_errors(invalid), not_fields=TYPES) from None


def _from_elsewhere(type: str) -> EntryPoint | None:
    return next(iter(entry_points(group="paddock.engines", name=type)), None)


class Engines:
    def __init__(self, settings: Mapping[str, EngineSettings]) -> None:
        self.settings = dict(settings)
        self._made: dict[str, Engine] = {}

    @classmethod
    def from_config(cls, config: Config) -> "Engines":
        return cls(settings_from(config))

    def __iter__(self) -> Iterator[str]:
        return iter(self.settings)

    def __getitem__(self, name: str) -> "Engine":
        if name not in self.settings:
            raise PermanentRunnerError(
                f"This worker has no engine '{name}'.",
                code="unknown_engine",
                hint=f"Add [engines.{name}] to the worker's paddock.toml; it has {', '.join(self.settings)}.",
            )
        if name not in self._made:
            self._made[name] = make(name, self.settings[name])
        return self._made[name]

    async def close(self) -> None:
        for engine in self._made.values():
            await engine.close()


def make(name: str, settings: EngineSettings) -> "Engine":
    """Imported here, one by one: an engine's library is loaded by those who use it."""
    if isinstance(settings, DuckdbSettings):
        from paddock.engines.children.duckdb import DuckdbEngine

        return DuckdbEngine(name, settings)
    if isinstance(settings, SqliteSettings):
        from paddock.engines.children.sqlite import SqliteEngine

        return SqliteEngine(name, settings)
    if isinstance(settings, PostgresSettings):
        from paddock.engines.postgres.engine import PostgresEngine

        return PostgresEngine(name, settings)
    if isinstance(settings, OtherSettings):
        point = _from_elsewhere(settings.type)
        assert point is not None, "it was there when the settings were read"
        made: Engine = point.load()(name, settings)
        return made
    from paddock.engines.trino.engine import TrinoEngine

    return TrinoEngine(name, settings)


def make_rewriter(
    name: str, settings: SparkSettings | TrinoSettings, *, role: str | None = None, job: str = ""
) -> "Rewriter":
    if isinstance(settings, SparkSettings):
        from paddock.engines.spark.rewriting import SparkRewriter

        return SparkRewriter(name, settings)
    from paddock.engines.trino.rewriting import TrinoRewriter

    return TrinoRewriter(name, settings, role, job)
