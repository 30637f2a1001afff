"""A worker under a control plane of another version: an older one's answers are enough, a newer one's not too much.
tests/api/test_versions.py has the same from the other side."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from paddock.metrics import Metrics
from paddock.worker.link import HttpLink
from paddock.worker.processes import ProcessRunners
from paddock.worker.settings import Settings
from paddock.worker.supervisor import Worker
from tests.api.test_versions import FIRST, padded
from tests.worker.conftest import OPTIONS, is_running
from tests.worker.kinds import KINDS
from tests.worker.plane import Plane, until
from tests.worker.served import TOKEN, served

ITEMS = {"jobs": "ClaimedJob", "verdicts": "ItemVerdict"}


def bare(answer: Any) -> Any:
    """Only what the first version had."""
    for name in ("Registered", "Claimed", "Verdicts"):
        fields = FIRST[name].split()
        if isinstance(answer, dict) and set(fields) <= set(answer):
            return {field: _bare_items(field, answer[field]) for field in fields}
    return answer


def _bare_items(field: str, value: Any) -> Any:
    if field not in ITEMS:
        return value
    return [{part: item[part] for part in FIRST[ITEMS[field]].split()} for item in value]


@pytest.fixture(params=[bare, padded])
async def working(request: pytest.FixtureRequest, plane: Plane) -> AsyncIterator[Worker]:
    async with served(plane, request.param) as url:
        link = HttpLink(url, TOKEN)
        worker = Worker(
            link=link,
            kinds=KINDS,
            runners=ProcessRunners(OPTIONS),
            settings=Settings(worker_id="of another version", empty_backoff=timedelta(seconds=0.2)),
            version="0",
            metrics=Metrics(CollectorRegistry()),
        )
        task = asyncio.create_task(worker.run())
        yield worker
        worker.stop()
        await task
        await link.close()


async def test_jobs_run_and_save_and_fail_and_are_cancelled(plane: Plane, working: Worker) -> None:
    plain, saving, failing = plane.add("noop"), plane.add("saves_once"), plane.add("fails")
    endless = plane.add("forever")
    await until(lambda: plain.ended and saving.ended and failing.ended and is_running(endless))
    assert (plain.status, saving.status, failing.status) == ("completed", "completed", "failed")
    assert saving.saved == {"number": 1}

    plane.cancel(endless)
    await until(lambda: endless.releases and not working.holding)
    assert endless.releases[-1].reason == "stopped"


async def test_it_gives_back_what_runs_when_it_stops(plane: Plane, working: Worker) -> None:
    job = plane.add("forever")
    await until(lambda: is_running(job))
    working.stop()
    await until(lambda: job.status == "released")
