"""What `paddock doctor` asks of exports: whether a worker reaches each engine, and whether each destination can be written.

Destinations are written from the control plane: whether workers can is theirs to show, so what fails here is a warning.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from paddock.config import Config, ConfigError
from paddock.doctor.asking_workers import OWNER, PATIENCE, answers
from paddock.doctor.findings import Finding, broken, ok, reason_of, warning
from paddock.doctor.on_store import write_read_delete
from paddock.exports.settings import ExportSettings
from paddock.jobs.core import Core
from paddock.jobs.model import URGENT, Job, NewJob

# What an engine cannot do without. `paddock engines check` shows the rest, and what a role may do.
NEEDED = ("reachable", "role", "types", "connection", "login", "query", "database ", "root ", "remote ")


async def leftovers(core: Core, config: Config) -> AsyncIterator[Finding]:
    from paddock.exports.leftovers import missing

    if config.has_store and (gone := await missing(core.db)):
        yield warning(
            "leftovers",
            f"Files that killed workers left are not removed: {', '.join(gone)} has tables here and is missing, so nobody "
            "knows which files it needs.",
            "Install its package again; or, when it is gone for good, drop its tables and its rows of schema_migrations.",
        )
    else:
        yield ok("leftovers", "Each capability that has tables here says which files it needs.")


async def engines(core: Core, config: Config) -> AsyncIterator[Finding]:
    from paddock.engines.registry import settings_from

    asked = {
        name: NewJob("describe", {"engine": name, "action": "check"}, owner=OWNER, priority=URGENT)
        for name in settings_from(config)
    }
    for name, job in (await answers(core, asked)).items():
        yield _engine(name, job)


def _engine(name: str, job: Job | str) -> Finding:
    remedy = f"Correct [engines.{name}] or the worker's environment; `paddock engines check {name}` asks again."
    if isinstance(job, str):
        return warning("engines", f"{name} was not checked: {job}", f"`paddock engines check {name}` asks again.")
    if job.status != "completed":
        return broken("engines", f"{name}: {job.error_message} (asked by {job.claimed_by})", remedy)
    found: Sequence[dict[str, Any]] = job.result.get("findings", ())
    wrong = [one for one in found if not one["ok"] and str(one["what"]).startswith(NEEDED)]
    if wrong:
        told = "; ".join(f"{one['what']}: {one['message']}" for one in wrong)
        return broken("engines", f"{name}: {told} (asked by {job.claimed_by})", wrong[0]["hint"] or remedy)
    return ok("engines", f"{name} answers {job.claimed_by}.")


async def destinations(core: Core, config: Config) -> AsyncIterator[Finding]:
    for name, problem in zip(
        config.of(ExportSettings).destinations,
        await asyncio.gather(*(_written(name, config) for name in config.of(ExportSettings).destinations)),
        strict=True,
    ):
        if problem is None:
            yield ok("destinations", f"{name}: write, read, delete.")
        else:
            yield warning(
                "destinations",
                f"{name} cannot be written from the control plane: {problem} Whether workers can was not checked.",
                f"Correct [destinations.{name}] and its credentials; if only workers have them, an export to it shows.",
            )


async def _written(name: str, config: Config) -> str | None:
    from paddock.exports.destinations import open_destination

    try:
        async with asyncio.timeout(PATIENCE):
            await write_read_delete(open_destination(name, config))
    except TimeoutError:
        return f"no answer within {PATIENCE:.0f} s."
    except ConfigError as problem:
        return str(problem)
    except Exception as problem:  # whatever a store's library raises, it is this finding
        return reason_of(problem).rstrip(".") + "."
    return None
