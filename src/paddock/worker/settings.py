"""What a worker may be told about itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from paddock.config import Config


@dataclass(frozen=True, kw_only=True)
class Settings:
    worker_id: str
    concurrency: int = 10
    # Slots of their own for submitted and cleanup jobs: something outside waits for them.
    submitted_concurrency: int = 10
    kind_concurrency: Mapping[str, int] = field(default_factory=dict)
    # More than one claim at a time only helps many short jobs.
    claims_in_flight: int = 1
    long_poll: timedelta = timedelta(seconds=30)
    # At most this long between two polls that came back empty before their time.
    poll_interval: timedelta = timedelta(seconds=5)
    # At most this long between two questions to a control plane that is away.
    empty_backoff: timedelta = timedelta(seconds=10)

    @classmethod
    def from_config(cls, config: Config) -> "Settings":
        return cls(
            worker_id=config.worker_id,
            concurrency=config.concurrency,
            submitted_concurrency=config.submitted_concurrency,
            kind_concurrency=config.kind_concurrency,
            claims_in_flight=config.claims_in_flight,
            poll_interval=config.poll_interval,
            empty_backoff=config.empty_backoff,
        )
