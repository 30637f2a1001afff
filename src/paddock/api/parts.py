"""Parts of a whole that people do not touch where an installation says so, like the jobs of a snapshot.

The whole is then made, retried and cancelled only with what needs it. A single job of it stays an operator's to cancel
or retry: somebody must be able to stop a query that hurts.
"""

from collections.abc import Collection, Mapping

from paddock.api.errors import ApiError
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.capability import each
from paddock.config import Config
from paddock.jobs.model import Job


def no_parts_of(config: Config, caller: Caller) -> Collection[str]:
    return () if caller.operator else _closed(config)


def check_part(plane: ControlPlane, caller: Caller, job: Job) -> None:
    whole = plane.core.kinds.part_of(job)
    if whole is not None and whole in no_parts_of(plane.config, caller):
        raise _closed(plane.config)[whole]


def _closed(config: Config) -> Mapping[str, ApiError]:
    return {name: refusal for _, closed in each("closed_wholes") for name, refusal in closed(config).items()}
