"""Things found by their name or id, whoever asks: `GET /api/search`, Ctrl-K and `paddock why`.

Each capability finds its own (`Capability.finder`) and answers nothing that the caller may not see.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar
from uuid import UUID

from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.capability import each
from paddock.jobs import reading, schedules
from paddock.jobs.filtering import Filter, id_range
from paddock.jobs.model import JobId


@dataclass(frozen=True, slots=True)
class Sought:
    """What somebody looks for: a part of a name, or the beginning of an id. `exactly` the whole name, for `paddock why`,
    which then also wants to know the job that tells most of the thing."""

    text: str
    limit: int
    exactly: bool = False

    def fits(self, name: str) -> bool:
        wanted = self.text.lower()
        return name.lower() == wanted if self.exactly else wanted in name.lower()

    @property
    def ids(self) -> tuple[UUID, UUID] | None:
        """The least and the greatest id that begin so; None: it is the beginning of none."""
        asked = Filter(q=self.text)
        return None if asked.id_prefix is None else id_range(asked.id_prefix)

    @property
    def before(self) -> UUID | None:
        """Where a page of what has such ids begins."""
        return None if self.ids is None else UUID(int=min(self.ids[1].int + 1, 2**128 - 1))

    def has(self, id: UUID) -> bool:
        return self.ids is not None and self.ids[0] <= id <= self.ids[1]


@dataclass(frozen=True, slots=True)
class Found:
    """`path` is its page, `note` a word or two on it. `job` is the one that tells most of it."""

    what: str
    id: str
    name: str
    path: str
    note: str = ""
    job: JobId | None = None


async def find(plane: ControlPlane, caller: Caller, sought: Sought) -> list[Found]:
    """What is called just so first, then what begins so; of equal ones in the order of the capabilities."""
    found: list[Found] = []
    for _, finder in each("finder"):
        found += await finder(plane, caller, sought)
    found += await _schedules(plane, caller, sought)
    wanted = sought.text.lower()
    found.sort(key=lambda one: (one.name.lower() != wanted, not one.name.lower().startswith(wanted)))
    return await _without_others_jobs(plane, caller, found[: sought.limit])


async def _without_others_jobs(plane: ControlPlane, caller: Caller, found: list[Found]) -> list[Found]:
    """Something may be seen by more people than the job that made it."""
    if caller.scope is None:
        return found
    jobs = await reading.placed(plane.core.db, [one.job for one in found if one.job is not None])
    seen = {job.id for job in jobs if caller.sees(job.owner)}
    return [one if one.job in seen else replace(one, job=None) for one in found]


async def _schedules(plane: ControlPlane, caller: Caller, sought: Sought) -> list[Found]:
    every = await schedules.page(plane.core.db, limit=1_000, owner=caller.scope, include_internal=caller.operator)
    return [
        Found("schedule", one.name, one.name, f"/schedules/{one.name}", one.kind, one.last_job_id)
        for one in every
        if sought.fits(one.name)
    ][: sought.limit]


class WithId(Protocol):
    @property
    def id(self) -> UUID: ...


T = TypeVar("T", bound=WithId)
Page = Callable[..., Awaitable[Sequence[T]]]


async def rows(sought: Sought, page: Page[T], containing: Page[T] | None = None) -> Sequence[T]:
    """Of a capability's newest things, `page` being bound to who asks; `containing` finds by a part of the name, where that
    is another statement."""
    if sought.ids is not None:
        return [one for one in await page(before=sought.before, limit=sought.limit) if sought.has(one.id)]
    if sought.exactly:
        return await page(name=sought.text, limit=sought.limit)
    return await (containing or page)(text=sought.text, limit=sought.limit)


def configured(what: str, names: Iterable[str], path: str, sought: Sought) -> Sequence[Found]:
    """Of things that the configuration names."""
    return [Found(what, name, name, path.format(name)) for name in sorted(names) if sought.fits(name)][: sought.limit]
