"""What `paddock doctor` asks of ingest: whether a worker has what its sources need, and can publish."""

from collections.abc import AsyncIterator

from paddock.config import Config
from paddock.doctor.asking_workers import OWNER, answers
from paddock.doctor.findings import Finding, broken, ok, warning
from paddock.ingest.source_settings import sources_from
from paddock.jobs.core import Core
from paddock.jobs.model import URGENT, Job, NewJob

NAME = "ingest sources"


async def sources(core: Core, config: Config) -> AsyncIterator[Finding]:
    known = sources_from(config)
    if not known:
        return
    job = (await answers(core, {NAME: NewJob("ingest_check", {}, owner=OWNER, priority=URGENT)}))[NAME]
    if isinstance(job, str):
        yield warning(
            NAME, f"They were not checked: {job}", "`paddock ingest try SOURCE` shows one, where its commands are."
        )
    elif job.status != "completed":
        yield broken(NAME, f"{job.error_message} (asked by {job.claimed_by})", "Look at the log of that worker.")
    else:
        for finding in _findings(job):
            yield finding


def _findings(job: Job) -> list[Finding]:
    assert isinstance(job.result, dict)
    who = f"(asked by {job.claimed_by})"
    found = []
    for name, problems in job.result["sources"].items():
        if problems:
            remedy = f"Correct [ingest.sources.{name}] and its hooks, or put it on the worker's machine."
            found.append(broken(NAME, f"{name}: {'; '.join(problems)} {who}.", remedy))
        else:
            found.append(ok(NAME, f"{name} has its commands and secrets on {job.claimed_by}."))
    if job.result["store"] is not None:
        told = f"Nothing can be published: {job.result['store'].rstrip('.')} {who}."
        found.append(broken(NAME, told, "Correct PADDOCK_OBJECT_STORE and the worker's credentials."))
    return found
