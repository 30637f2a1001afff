"""Parts of a whole that people do not touch where an installation says so: snapshots, with `explicit_snapshots` off.

The whole is then made, retried and cancelled only with what needs it. A single job of it stays an operator's to cancel
or retry: somebody must be able to stop a query that hurts.
"""

from collections.abc import Collection

from paddock.api.errors import ApiError
from paddock.api.plane import Plane
from paddock.api.tokens import Caller
from paddock.config import Config
from paddock.jobs.model import Job


def no_parts_of(config: Config, caller: Caller) -> Collection[str]:
    return () if caller.operator or config.explicit_snapshots else ("snapshot",)


def check_part(plane: Plane, caller: Caller, job: Job) -> None:
    if plane.core.kinds.part_of(job) in no_parts_of(plane.config, caller):
        raise _explicit_off()


def check_explicit(config: Config) -> None:
    if not config.explicit_snapshots:
        raise _explicit_off()


def _explicit_off() -> ApiError:
    return ApiError(
        403,
        "explicit_snapshots_off",
        "Here snapshots are made, retried and cancelled only with the instances that need them.",
        hint="Make an instance of the mapping instead; the setting is PADDOCK_EXPLICIT_SNAPSHOTS.",
    )
