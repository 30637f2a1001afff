"""What capabilities say about the whole that a job is part of: `paddock why` and the page of the job tell it besides."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.capability import each
from paddock.jobs.model import Job


@dataclass(frozen=True, slots=True)
class Around:
    """A sentence, and what to do about it."""

    sentence: str
    what_to_do: Sequence[str] = field(default_factory=list)


async def around(plane: ControlPlane, caller: Caller, job: Job) -> list[Around]:
    return [told for _, tell in each("around") for told in await tell(plane, caller, job)]
