"""Instances by their name or id."""

from datetime import timedelta
from functools import partial

from paddock.api.finding import Found, Sought, rows
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.instances import model
from paddock.instances.model import Instance
from paddock.jobs import reading
from paddock.jobs.filtering import Filter
from paddock.jobs.model import JobId


async def find(plane: ControlPlane, caller: Caller, sought: Sought) -> list[Found]:
    seen = await rows(sought, partial(model.page, plane.core.db, scope=caller.scope))
    return [
        Found(
            "instance",
            str(one.id),
            one.name,
            f"/instances/{one.id}",
            one.status.replace("_", " "),
            await _job_of(plane, caller, one) if sought.exactly else None,
        )
        for one in seen
    ]


async def _job_of(plane: ControlPlane, caller: Caller, instance: Instance) -> JobId | None:
    """The job at work for it, else the newest that was. One of somebody else's instance is not told."""
    if instance.job_id is not None or not caller.sees(instance.owner):
        return instance.job_id if caller.sees(instance.owner) else None
    asked = Filter(
        owner=instance.owner,
        tag=model.subject_of(instance.id),
        since=instance.created_at - timedelta(minutes=1),
        include_cleanups=False,
    )
    newest = (await reading.page(plane.core.db, asked, limit=1)).jobs
    return newest[0].id if newest else None
