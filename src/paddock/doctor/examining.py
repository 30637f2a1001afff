"""All checks, one after the other."""

import asyncio
from collections.abc import Mapping

import structlog

from paddock.capability import capabilities, leaving_out, load
from paddock.config import Config
from paddock.db.pool import UNAVAILABLE
from paddock.doctor.findings import Check, Finding, broken, reason_of
from paddock.doctor.on_database import clock, database, durability, migrations, pressure
from paddock.doctor.on_store import object_store
from paddock.doctor.on_work import backlog, drain, kinds, schedules, workers
from paddock.jobs.core import Core

LONGEST_CHECK = 10.0
log = structlog.get_logger()

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


def all_checks() -> dict[str, Check]:
    """The core's, then the capabilities'."""
    found = dict(CHECKS)
    for capability in capabilities():
        with leaving_out(capability):
            if taken := found.keys() & capability.checks.keys():
                raise ValueError(f"there is a check '{min(taken)}' already")
            found |= {name: load(target) for name, target in capability.checks.items()}
    return found


async def server_checks(core: Core, config: Config) -> list[Finding]:
    found: list[Finding] = []
    for name, check in all_checks().items():
        try:
            async with asyncio.timeout(LONGEST_CHECK):
                found += [finding async for finding in check(core, config)]
        except TimeoutError:
            found.append(
                broken(name, f"No answer within {LONGEST_CHECK:.0f} s.", "Look at the database's log and load.")
            )
        except Exception as problem:  # a check that cannot be made is a finding, and spoils no other
            log.warning("doctor_check_failed", check=name, exc_info=not isinstance(problem, UNAVAILABLE))
            told = f"The check failed: {reason_of(problem)}"
            found.append(broken(name, told, "Look at the log of the control plane and of the database."))
    return found
