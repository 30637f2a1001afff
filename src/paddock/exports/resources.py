"""What export handlers work with: the managed store, scratch space, memory, engines and destinations.

One in each runner process. Everything is made on first use: a runner that never exports pays nothing.
"""

from functools import cached_property
from typing import TYPE_CHECKING

from paddock.config import Config, load
from paddock.exports.settings import ExportSettings
from paddock.jobs.errors import PermanentRunnerError

if TYPE_CHECKING:
    from paddock.engines.registry import Engines
    from paddock.storage.memory import Memory
    from paddock.storage.scratch import Scratch
    from paddock.storage.store import Store
    from paddock.worker.resources import Factories


class ExportResources:
    def __init__(self, config: Config) -> None:
        self.config = config
        self._destinations: dict[str, Store] = {}

    @classmethod
    def from_environment(cls) -> "ExportResources":
        return cls(load())

    @cached_property
    def store(self) -> "Store":
        from paddock.storage.store import open_store

        return open_store(self.config.object_store)

    @cached_property
    def scratch(self) -> "Scratch":
        from paddock.storage.scratch import Scratch

        return Scratch(self.config.scratch, self.config.scratch_bytes)

    @cached_property
    def memory(self) -> "Memory":
        from paddock.storage.memory import Memory

        return Memory(self.config.of(ExportSettings).memory_bytes)

    @cached_property
    def engines(self) -> "Engines":
        from paddock.engines.registry import Engines

        return Engines.from_config(self.config)

    def destination(self, name: str) -> "Store":
        from paddock.exports.destinations import open_destination

        if name not in self.config.of(ExportSettings).destinations:
            raise PermanentRunnerError(
                f"This worker has no destination '{name}'.",
                code="unknown_destination",
                hint=f"Add [destinations.{name}] to the worker's paddock.toml, or name another destination.",
            )
        if name not in self._destinations:
            self._destinations[name] = open_destination(name, self.config)
        return self._destinations[name]


def resources() -> "Factories":
    return {ExportResources: ExportResources.from_environment}
