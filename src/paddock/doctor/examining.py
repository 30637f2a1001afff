"""All checks, one after the other."""

import asyncio
from collections.abc import Mapping

from paddock.config import Config
from paddock.db.pool import UNAVAILABLE
from paddock.doctor.findings import Check, Finding, broken
from paddock.doctor.on_database import clock, database, durability, migrations, pressure
from paddock.doctor.on_store import object_store
from paddock.doctor.on_work import backlog, drain, kinds, schedules, workers
from paddock.jobs.core import Core
from paddock.log import scrub

LONGEST_CHECK = 10.0

CHECKS: Mapping[str, Check] = {
    "database": database,
    "migrations": migrations,
    "durability": durability,
    "clock": clock,
    "database load": pressure,
    "object store": object_store,
    "workers": workers,
    "kinds": kinds,
    "schedules": schedules,
    "drain": drain,
    "backlog": backlog,
}


async def server_checks(core: Core, config: Config) -> list[Finding]:
    found: list[Finding] = []
    for name, check in CHECKS.items():
        try:
            async with asyncio.timeout(LONGEST_CHECK):
                found += [finding async for finding in check(core, config)]
        except TimeoutError:
            found.append(
                broken(name, f"No answer within {LONGEST_CHECK:.0f} s.", "Look at the database's log and load.")
            )
        except UNAVAILABLE as problem:
            told = scrub(f"The check failed: {type(problem).__name__}: {problem}", limit=500)
            found.append(broken(name, told, "Look at the log of the control plane and of the database."))
    return found
