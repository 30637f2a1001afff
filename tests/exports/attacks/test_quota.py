"""How much one owner may keep: alone, in two requests at once, and while exports are being made."""

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from paddock.exports import plain
from paddock.exports.plain import NewExport
from paddock.jobs import wire
from paddock.jobs.core import Core
from paddock.jobs.errors import Refused
from tests.exports.attacks.making import ask, asked, complete, fail, look
from tests.playing import worker

QUOTA = 1_000


@pytest.fixture(autouse=True)
async def quota(core: Core) -> None:
    async with core.db.transaction() as tx:
        await tx.execute(
            "INSERT INTO settings (name, value, updated_by) VALUES ('export.quota_bytes', $1, 'x')", str(QUOTA)
        )


async def refused(client: httpx2.AsyncClient) -> bool:
    answer = await ask(client)
    if answer.status_code == 202:
        return False
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "quota_exceeded")
    return True


def new(**fields: Any) -> NewExport:
    payload = {"engine": "local", "sql": "SELECT 1 AS a", **fields}
    return NewExport(owner="ada", role=None, payload=payload, request=fields, ttl=timedelta(1), quota_bytes=QUOTA)


async def report(core: Core, size: int) -> None:
    """Of all that wait, cleanups too."""
    played = await worker(core)
    attempts = await played.claim("export")
    held = [wire.Held(id=one.job.id, attempt_id=one.job.attempt_id, report={"bytes": size}) for one in attempts]
    await played.link.beat(played.session, wire.Beat(holding=held))


async def test_completed_files_count(core: Core, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient) -> None:
    made = await asked(ada)
    await complete(core, bytes=QUOTA)

    assert await refused(ada)
    assert not await refused(bob)
    await plain.delete(core, (await look(core, made)).id, actor="ada")
    assert not await refused(ada)


async def test_what_is_being_made_counts_as_far_as_it_has_come(core: Core, ada: httpx2.AsyncClient) -> None:
    await asked(ada)
    assert not await refused(ada)
    await report(core, QUOTA)

    assert await refused(ada)


async def test_what_is_made_again_counts_too(core: Core, ada: httpx2.AsyncClient) -> None:
    made = await asked(ada)
    await fail(core)
    await core.retry((await look(core, made)).job_id, actor="ada")
    await report(core, QUOTA)

    assert await refused(ada)


async def test_what_failed_does_not_count(core: Core, ada: httpx2.AsyncClient) -> None:
    await asked(ada, max_bytes=QUOTA)
    await fail(core)

    assert not await refused(ada)


async def test_of_many_requests_at_once_only_one_gets_the_room(core: Core) -> None:
    async def make() -> bool:
        with contextlib.suppress(Refused):
            await plain.create(core, new(max_bytes=QUOTA))
            return True
        return False

    assert sum(await asyncio.gather(*(make() for _ in range(8)))) == 1


async def test_limits_as_large_as_numbers_go_are_added_up(core: Core, ada: httpx2.AsyncClient) -> None:
    for _ in range(3):
        await plain.create(core, replace(new(max_bytes=2**63 - 1), quota_bytes=None))

    assert await refused(ada)
