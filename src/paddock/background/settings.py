"""How far the passes of each background job are apart. The names are those of the older deployment."""

from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field

from paddock.config.settings import Setting, Settings


def _whole(value: object) -> object:
    if isinstance(value, bool | float) or (isinstance(value, str) and not value.isdecimal()):
        raise ValueError("it should be a whole number of seconds, at least 1")
    return value


Interval = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=31 * 86400)]


class BackgroundSettings(Settings):
    reconciliation: Annotated[Interval, Setting("reconciliation_job_interval_seconds")] = 300
    lifecycle: Annotated[Interval, Setting("lifecycle_job_interval_seconds")] = 300
    export_reconciliation: Annotated[Interval, Setting("export_reconciliation_job_interval_seconds")] = 5
    schema_cache: Annotated[Interval, Setting("schema_cache_job_interval_seconds")] = 86400
    instance_orchestration: Annotated[Interval, Setting("instance_orchestration_job_interval_seconds")] = 30
    resource_monitor: Annotated[Interval, Setting("resource_monitor_job_interval_seconds")] = 60

    def every(self, job: str) -> timedelta:
        seconds: int = getattr(self, job)
        return timedelta(seconds=seconds)
