"""The settings of exports. They are older than capabilities, so each has a name of its own outside.

`scratch` and `scratch_bytes` are settings of the core: engines hide that folder from queries.
"""

from typing import Annotated

from pydantic import Field

from paddock.config.checking import overlap
from paddock.config.model import Config
from paddock.config.refusing import ConfigError
from paddock.config.settings import Setting, Settings
from paddock.config.values import Bytes, Tables


class ExportSettings(Settings):
    direct_export: Annotated[bool, Setting("direct_export", older=("DIRECT_EXPORT",))] = True
    gcp_project: Annotated[str | None, Setting("gcp_project", older=("GCP_PROJECT",))] = None
    memory_bytes: Annotated[Bytes, Setting("export_memory_bytes")] = 192 * 1024**2
    explicit_snapshots: Annotated[bool, Setting("explicit_snapshots")] = True
    destinations: Annotated[Tables, Setting("destinations", at_top=True, paths=("url",))] = Field(default_factory=dict)

    def check(self, config: Config) -> None:
        """A place has one name: exports take turns at `lake:orders`, and would not know that it is `sales:orders` too."""
        places = [("object_store", config.object_store)] if config.has_store else []
        for name, table in self.destinations.items():
            if isinstance(url := table.get("url"), str):
                places.append((f"destinations.{name}", url))
        for at, (name, url) in enumerate(places):
            for other, its_url in places[:at]:
                if overlap(url, its_url):
                    raise ConfigError(
                        f"{name} and {other} must be places of their own: one is the other, or a folder inside it."
                    )
