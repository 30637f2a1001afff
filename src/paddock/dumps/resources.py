"""What dump handlers work with. One in each runner process, made on first use."""

from functools import cached_property
from typing import TYPE_CHECKING

from paddock.config import Config, load
from paddock.dumps.database_settings import DatabaseSettings, databases_from
from paddock.jobs.errors import PermanentRunnerError

if TYPE_CHECKING:
    from paddock.storage.parts import Parts
    from paddock.storage.store import Store
    from paddock.worker.resources import Factories


class DumpResources:
    def __init__(self, config: Config) -> None:
        self.config = config

    @classmethod
    def from_environment(cls) -> "DumpResources":
        return cls(load())

    @cached_property
    def databases(self) -> dict[str, DatabaseSettings]:
        return databases_from(self.config)

    @cached_property
    def store(self) -> "Store":
        from paddock.storage.store import open_store

        return open_store(self.config.object_store)

    @cached_property
    def parts(self) -> "Parts":
        from paddock.storage.parts import open_parts

        return open_parts(self.store)

    def database(self, name: str) -> DatabaseSettings:
        if name not in self.databases:
            raise PermanentRunnerError(
                f"This worker has no database '{name}' to dump.",
                code="unknown_database",
                hint=f"Add [dumps.databases.{name}] to the worker's paddock.toml.",
            )
        return self.databases[name]


def resources() -> "Factories":
    return {DumpResources: DumpResources.from_environment}
