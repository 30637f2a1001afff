"""`cluster_probe`: a Job of the instance image in the namespace of instances that says what it could reach."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from paddock.config import Config

if TYPE_CHECKING:
    from paddock.jobs.kinds import Kind

PROBE = "cluster_probe"


def internal_kinds(_config: Config) -> "Sequence[Kind]":
    from paddock.cluster import probing
    from paddock.jobs.kinds import Backoff, Kind, Nothing

    return (
        Kind(
            name=PROBE,
            payload=Nothing,
            handler=probing.run_probe,
            cleanup=probing.clean_probe,
            internal=True,
            # Somebody waits for it: what does not work now is what they want to know.
            retry=Backoff(limit=1, cluster_limit=1),
            turn_timeout=timedelta(minutes=30),
            concurrency=1,
            lock_key=lambda _payload: PROBE,
        ),
    )
