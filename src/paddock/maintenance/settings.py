"""The settings of maintenance. What stands in `[catalogs.X]` is read by `catalog_settings.py`."""

from typing import Annotated

from pydantic import Field

from paddock.config.settings import Setting, Settings
from paddock.config.values import Tables


class MaintenanceSettings(Settings):
    catalogs: Annotated[Tables, Setting("catalogs", at_top=True)] = Field(default_factory=dict)
    fail_on_sigterm: bool = False
