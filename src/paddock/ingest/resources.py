"""What the handlers of ingest work with. One in each runner process, made on first use."""

import asyncio
import math
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.config import Config, load
from paddock.ingest.source_settings import (
    Hook,
    SecretSource,
    Source,
    hooks_from,
    named_place,
    read_secret,
    sources_from,
)
from paddock.jobs.errors import PermanentRunnerError

if TYPE_CHECKING:
    from paddock.storage.scratch import Scratch
    from paddock.storage.store import Store
    from paddock.worker.resources import Factories


class IngestResources:
    def __init__(self, config: Config) -> None:
        self.config = config

    @classmethod
    def from_environment(cls) -> "IngestResources":
        return cls(load())

    @cached_property
    def sources(self) -> dict[str, Source]:
        return sources_from(self.config)

    @cached_property
    def hooks(self) -> dict[str, Hook]:
        return hooks_from(self.config)

    @cached_property
    def places(self) -> asyncio.Semaphore:
        """Commands at once, ingesters and hooks together: they share the machine's cores."""
        return asyncio.Semaphore(cores())

    @cached_property
    def store(self) -> "Store":
        from paddock.storage.store import open_store

        return open_store(self.config.object_store)

    @cached_property
    def scratch(self) -> "Scratch":
        from paddock.storage.scratch import Scratch

        return Scratch(self.config.scratch, self.config.scratch_bytes)

    def source(self, name: str) -> Source:
        if name not in self.sources:
            raise PermanentRunnerError(
                f"This worker has no source '{name}'.",
                code="unknown_source",
                hint=f"Add [ingest.sources.{name}] to the worker's paddock.toml.",
            )
        return self.sources[name]


def cores(cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Those that this process may use: a container often has fewer than its machine."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = cpu_max.read_text().split()
        return allowed if quota == "max" else max(1, min(allowed, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        return allowed


def secret_values(secrets: dict[str, SecretSource]) -> dict[str, str]:
    """The variables that a command is given, read where this worker runs."""
    found: dict[str, str] = {}
    for variable, place in secrets.items():
        value = read_secret(place)
        if value is None:
            raise PermanentRunnerError(
                f"The secret {variable} is not there: this worker does not have {named_place(place)}.",
                code="secret_missing",
                hint="Give it to the worker, or name another place in paddock.toml.",
            )
        found[variable] = value
    return found


def resources() -> "Factories":
    return {IngestResources: IngestResources.from_environment}
