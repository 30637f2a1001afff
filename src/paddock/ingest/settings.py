"""The settings of ingest. What stands in `[ingest.sources.X]` and `[ingest.hooks.X]` is read by `source_settings.py`."""

from typing import Annotated

from pydantic import Field, StringConstraints

from paddock.config.settings import Setting, Settings
from paddock.config.values import Bytes, HttpUrl, Tables

Namespace = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
PATHS = ("folder", "catalog")


class IngestSettings(Settings):
    sources: Annotated[Tables, Setting(paths=PATHS)] = Field(default_factory=dict)
    hooks: Annotated[Tables, Setting(paths=PATHS)] = Field(default_factory=dict)
    # Where the Jobs of steps run on a cluster.
    kubernetes_ingest_namespace: Annotated[Namespace, Setting("kubernetes_ingest_namespace")] = "ingest-jobs"
    transfer_url: HttpUrl | None = None  # None: the address by which the worker knows the control plane
    # What a run may have fetched and not yet published before its ingester waits.
    waiting_bytes: Bytes = 10 * 1024**3
