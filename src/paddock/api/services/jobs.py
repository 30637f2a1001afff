"""Which jobs a caller sees, whoever asks: a route, a page or a command only translates."""

from paddock.api.errors import not_found
from paddock.api.ids import path_id
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.jobs.model import Job, JobId


async def visible_job(plane: ControlPlane, caller: Caller, text: str) -> Job:
    job = await plane.core.job(JobId(path_id(text, "job")))
    if job is None or not caller.sees(job.owner):
        raise not_found("job")
    return job
