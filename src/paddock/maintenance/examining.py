"""What `paddock doctor` asks of maintenance: whether a worker opens each catalog, finds its files, and sees it by its engine."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from paddock.config import Config
from paddock.doctor.asking_workers import OWNER, answers
from paddock.doctor.findings import Finding, broken, ok, warning
from paddock.jobs.core import Core
from paddock.jobs.model import URGENT, Job, NewJob
from paddock.maintenance.catalog_settings import catalogs_from
from paddock.maintenance.model import TABLES_PREFIX, LookPayload


async def catalogs(core: Core, config: Config) -> AsyncIterator[Finding]:
    asked = {
        name: NewJob(
            f"{TABLES_PREFIX}{name}",
            LookPayload(catalog=name, check=True).model_dump(mode="json", exclude_none=True),
            owner=OWNER,
            priority=URGENT,
        )
        for name in catalogs_from(config)
    }
    for name, job in (await answers(core, asked)).items():
        yield _catalog(name, job)


def _catalog(name: str, job: Job | str) -> Finding:
    again = f"`paddock catalogs check {name}` asks again."
    if isinstance(job, str):
        return warning("catalogs", f"{name} was not checked: {job}", again)
    remedy = f"Correct [catalogs.{name}] or the worker's environment; {again}"
    if job.status != "completed":
        return broken("catalogs", f"{name}: {job.error_message} (asked by {job.claimed_by})", remedy)
    found: Sequence[dict[str, Any]] = job.result.get("findings", ())
    wrong = [one for one in found if not one["ok"]]
    if wrong:
        told = "; ".join(f"{one['what']}: {one['message']}" for one in wrong)
        return broken("catalogs", f"{name}: {told} (asked by {job.claimed_by})", wrong[0]["hint"] or remedy)
    return ok("catalogs", f"{name} answers {job.claimed_by}: {found[1]['message'] if len(found) > 1 else 'it opens.'}")
