"""What `paddock doctor` asks of dumps: whether a worker can dump each database."""

from collections.abc import AsyncIterator

from paddock.config import Config
from paddock.doctor.asking_workers import OWNER, answers
from paddock.doctor.findings import Finding, broken, ok, warning
from paddock.dumps.settings import DumpSettings
from paddock.jobs.core import Core
from paddock.jobs.model import URGENT, Job, NewJob


async def databases(core: Core, config: Config) -> AsyncIterator[Finding]:
    asked = {
        name: NewJob(f"dump:{name}", {"database": name, "check": True}, owner=OWNER, priority=URGENT)
        for name in config.of(DumpSettings).databases
    }
    for name, job in (await answers(core, asked)).items():
        yield _database(name, job)


def _database(name: str, job: Job | str) -> Finding:
    remedy = f"Correct [dumps.databases.{name}] or the worker's environment."
    if isinstance(job, str):
        return warning("databases", f"{name} was not checked: {job}", f"A dump shows it: `paddock dump {name}`.")
    if job.error_code == "invalid_payload":
        return warning(
            "databases", f"{name} was not checked: {job.claimed_by} is older and cannot.", "Update that worker."
        )
    problem = job.error_message if job.status != "completed" else job.result["problem"]
    if problem is not None:
        hint = None if job.status != "completed" else job.result["hint"]
        return broken("databases", f"{name}: {problem} (asked by {job.claimed_by})", hint or remedy)
    return ok("databases", f"{name} can be dumped by {job.claimed_by}.")
