"""The settings of dumps. What stands in `[dumps.databases.X]` is read by `database_settings.py`."""

from typing import Annotated

from pydantic import Field

from paddock.config.settings import Setting, Settings
from paddock.config.values import Days, PartBytes, Seconds, Tables, Words


class DumpSettings(Settings):
    databases: Annotated[Tables, Setting(paths=("path", "work_dir", "ca_file", "password_file", "pg_dump"))] = Field(
        default_factory=dict
    )
    default_database: str | None = None  # None: the only one there is
    sync_max_seconds: Seconds = 900
    keep_days: Days = 7
    slice_seconds: Seconds = 4.5
    part_bytes: PartBytes | None = None  # None: by the size of the database
    cors_origins: Words = ()
    callback_allow_http: bool = False
