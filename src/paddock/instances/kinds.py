"""The kinds of instances, all internal: they need the database, and the runtime is the control plane's."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING

from paddock.config import Config

if TYPE_CHECKING:
    from paddock.jobs.kinds import Kind

EVENTS = {
    "instance.created": "Somebody asked for an instance",
    "instance.running": "An instance runs and can be asked",
    "instance.failed": "An instance failed",
    "instance.reopened": "An instance was started again",
    "instance.deleted": "An instance is gone",
    "instance.expiring": "An instance ends within a quarter of an hour",
    "instance.restarted": "An instance is started once more, since what it ran on was taken away",
    "instance.memory_high": "An instance comes near its memory",
    "instance.extended": "An instance lives longer",
    "instance.shared": "An instance was shared with somebody, or no longer is",
    "instance.dangling_edges": "Edges whose ends are missing were left out of an instance",
    "instance.engine_restarted": "The graph engine of an instance had to be restarted",
    "instance.algorithm_completed": "An algorithm on an instance completed",
    "instance.algorithm_failed": "An algorithm on an instance failed",
}
SNAPSHOT_ENDS = ("snapshot.ready", "snapshot.failed", "snapshot.cancelled", "snapshot.deleted")


def internal_kinds(_config: Config) -> "Sequence[Kind]":
    return _kinds()


@cache
def _kinds() -> "Sequence[Kind]":
    """Made here: the modules are the control plane's, and a worker that only reads the declaration loads none of them."""
    from paddock.instances import algorithms, following, growing, moving, starting, stopping
    from paddock.jobs.kinds import Backoff, Kind

    patient = Backoff(first=timedelta(seconds=1), cap=timedelta(seconds=30), limit=20, cluster_limit=100)
    # Days: while the runtime is away, full or not ours, starts wait and pods are still taken away once it is back.
    starting_patience = replace(patient, cluster_limit=10_000)
    return (
        Kind(
            name=following.FOLLOW,
            payload=following.FollowPayload,
            handler=following.run_follow,
            about="snapshot_id",
            internal=True,
            retry=patient,
            hears=dict.fromkeys(SNAPSHOT_ENDS, following.hear),
        ),
        Kind(
            name="instance_start",
            payload=starting.StartPayload,
            handler=starting.run_start,
            about="instance_id",
            cleanup=starting.clean_start,
            on_end=starting.start_ended,
            on_cleanup_end=starting.start_cleaned,
            end_events=EVENTS,
            internal=True,
            retry=starting_patience,
            concurrency=8,
            turn_timeout=timedelta(minutes=5),
            lock_key=lambda payload: f"instance:{payload.instance_id}",
            public_saved=("progress", "name"),
        ),
        Kind(
            name="instance_stop",
            payload=stopping.StopPayload,
            handler=stopping.run_stop,
            about="instance_id",
            on_end=stopping.stop_ended,
            internal=True,
            retry=Backoff(
                first=timedelta(seconds=1), cap=timedelta(minutes=5), limit=1000, cluster_limit=1000, loss_limit=100
            ),
            concurrency=8,
            turn_timeout=timedelta(minutes=5),
            lock_key=lambda payload: f"instance:{payload.instance_id}",
        ),
        Kind(
            name=moving.GROW,
            payload=growing.GrowPayload,
            handler=growing.run_grow,
            about="instance_id",
            on_end=growing.grow_ended,
            internal=True,
            retry=patient,
            concurrency=8,
            turn_timeout=timedelta(minutes=2),
            lock_key=lambda payload: f"instance:{payload.instance_id}",
        ),
        Kind(
            name=algorithms.ALGORITHM,
            payload=algorithms.AlgorithmPayload,
            handler=algorithms.run_algorithm,
            about=lambda payload: f"{payload.algorithm} on {payload.instance_id}",
            cleanup=algorithms.clean_algorithm,
            on_end=algorithms.algorithm_ended,
            internal=True,
            retry=patient,
            concurrency=8,
            turn_timeout=timedelta(minutes=2),
            lock_key=lambda payload: f"algorithm:{payload.instance_id}",
            public_saved=("progress",),
        ),
    )
