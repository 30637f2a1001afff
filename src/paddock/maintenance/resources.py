"""What maintenance handlers work with. One in each runner process, made on first use."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from paddock.config import Config, load
from paddock.jobs.errors import PermanentRunnerError
from paddock.maintenance.catalog_settings import EMBEDDED, CatalogSettings, catalogs_from

if TYPE_CHECKING:
    from paddock.engines.rewriting import Rewriter
    from paddock.worker.resources import Factories


class MaintenanceResources:
    def __init__(self, config: Config) -> None:
        self.config = config

    @classmethod
    def from_environment(cls) -> "MaintenanceResources":
        return cls(load())

    @cached_property
    def catalogs(self) -> dict[str, CatalogSettings]:
        return catalogs_from(self.config)

    def catalog(self, name: str) -> CatalogSettings:
        if name not in self.catalogs:
            raise PermanentRunnerError(
                f"This worker has no catalog '{name}'.",
                code="unknown_catalog",
                hint=f"Add [catalogs.{name}] to the worker's paddock.toml.",
            )
        return self.catalogs[name]

    @contextmanager
    def rewriter(self, catalog: str, job: str = "") -> "Iterator[Rewriter | None]":
        """What rewrites the catalog's tables; None: we do."""
        settings = self.catalog(catalog)
        if settings.rewrites == EMBEDDED:
            yield None
            return
        from paddock.engines.registry import make_rewriter, rewriters_from

        engine = rewriters_from(self.config)[settings.rewrites]
        rewriter = make_rewriter(settings.rewrites, engine, role=settings.engine_role, job=job)
        try:
            yield rewriter
        finally:
            rewriter.close()


def resources() -> "Factories":
    return {MaintenanceResources: MaintenanceResources.from_environment}
