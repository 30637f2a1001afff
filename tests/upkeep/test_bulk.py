"""A bulk action goes through all that matched when it was asked for, in chunks, whatever single jobs answer."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from paddock.jobs import bulk, reading
from paddock.jobs.bulk import BulkPayload, run_bulk
from paddock.jobs.core import Core
from paddock.jobs.errors import Refused
from paddock.jobs.filtering import Filter
from paddock.jobs.model import AttemptId, JobId, JsonObject
from paddock.jobs.outcomes import Again, Done
from paddock.jobs.reading import Count
from paddock.jobs.turn import Turn
from tests.conftest import DatabaseClock
from tests.playing import submit, worker


class Crash(Exception):
    pass


class Line:
    """A turn's line to nowhere, which can go down after some saves."""

    def __init__(self, saves: int = 1_000) -> None:
        self.left = saves
        self.saved: JsonObject = {}
        self.reported: JsonObject = {}

    async def save(self, state: JsonObject, *, progress: bool = True) -> None:
        if not self.left:
            raise Crash
        self.left -= 1
        self.saved = state

    def save_blocking(self, state: JsonObject, *, progress: bool = True) -> None:
        raise NotImplementedError

    def report(self, progress: JsonObject) -> None:
        self.reported = progress

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        raise NotImplementedError


async def turn(
    core: Core,
    clock: DatabaseClock,
    action: Any,
    asked: Filter,
    line: Line,
    saved: JsonObject | None = None,
    **rights: Any,
) -> Any:
    content = bulk.payload(
        action,
        asked,
        until=clock.at,
        actor="ops",
        reason="clean",
        all_jobs=False,
        rights=bulk.Rights.model_validate(rights),
    )
    return await run_bulk(
        Turn(
            id=JobId(uuid4()),
            attempt_id=AttemptId(uuid4()),
            kind="bulk",
            payload=BulkPayload.model_validate(content),
            saved=saved,
            owner="ops",
            link=line,
        ),
        core,
    )


async def test_cancel_takes_what_matched_and_no_job_made_later(core: Core, clock: DatabaseClock) -> None:
    await submit(core, n=450)
    await submit(core, "other", n=3)
    await clock.advance(seconds=1)
    later = await submit(core, n=2)
    line = Line()
    outcome = await turn(core, clock, "cancel", Filter(kind="plain"), line)
    assert isinstance(outcome, Done)
    assert outcome.result == {"matched": 450, "done": 450, "skipped": 0, "refused": {}}
    assert line.reported["total"] == 450
    left = (await reading.page(core.db, Filter(status="pending"), limit=100)).jobs
    assert [job.id for job in left if job.kind == "plain"] == later[::-1]
    assert len(left) == 5


async def test_more_than_can_be_counted_are_done_all_the_same_without_a_total(
    core: Core, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submit(core, n=250)
    await clock.advance(seconds=1)
    monkeypatch.setattr(bulk, "MOST_COUNTED", 100)
    line = Line()
    outcome = await turn(core, clock, "cancel", Filter(kind="plain"), line)
    assert outcome.result["done"] == 250
    assert line.reported == {"done": 250, "total": None, "phase": "cancel"}


async def test_after_a_crash_it_goes_on_from_the_last_chunk(core: Core, clock: DatabaseClock) -> None:
    await submit(core, n=500)
    await clock.advance(seconds=1)
    line = Line(saves=1)
    with pytest.raises(Crash):
        await turn(core, clock, "cancel", Filter(kind="plain"), line)
    assert line.saved["matched"] == 200
    outcome = await turn(core, clock, "cancel", Filter(kind="plain"), Line(), saved=line.saved)
    assert outcome.result["done"] + outcome.result["skipped"] == outcome.result["matched"] == 300
    assert await reading.count(core.db, Filter(status="cancelled")) == Count(500, more=False)


async def test_one_refused_retry_stops_nothing(core: Core, clock: DatabaseClock) -> None:
    for _ in range(2):
        [job] = await submit(core, "locking", payload={"lock": "t"})
        await core.cancel([job], actor="ops")
    for job in await submit(core, n=3):
        await core.cancel([job], actor="ops")
    await clock.advance(seconds=1)
    outcome = await turn(core, clock, "retry", Filter(owner="ann"), Line())
    assert outcome.result == {"matched": 5, "done": 4, "skipped": 0, "refused": {"lock_held": 1}}
    outcome = await turn(core, clock, "retry", Filter(owner="ann"), Line())
    assert outcome.result == {"matched": 5, "done": 0, "skipped": 4, "refused": {"lock_held": 1}}


async def test_a_retry_under_a_role_the_asker_may_not_use_is_refused(core: Core, clock: DatabaseClock) -> None:
    roles = ("finance", "people", None)
    jobs = [(await submit(core, role=role))[0] for role in roles]
    await core.cancel(jobs, actor="ops")
    await clock.advance(seconds=1)
    outcome = await turn(core, clock, "retry", Filter(kind="plain"), Line(), engine_roles=["people"])
    assert outcome.result == {"matched": 3, "done": 2, "skipped": 0, "refused": {"engine_role_not_allowed": 1}}
    retried = (await reading.page(core.db, Filter(status="pending"), limit=100)).jobs
    assert {job.retry_of for job in retried} == set(jobs[1:])
    outcome = await turn(core, clock, "retry", Filter(kind="plain"), Line())
    assert outcome.result == {"matched": 3, "done": 1, "skipped": 2, "refused": {}}


async def test_a_retry_in_bulk_waits_for_the_end_of_drain(core: Core, clock: DatabaseClock) -> None:
    await core.cancel(await submit(core, n=3), actor="ops")
    await clock.advance(seconds=1)
    await core.drain(True, actor="ops")
    assert isinstance(await turn(core, clock, "retry", Filter(kind="plain"), Line()), Again)


async def test_a_cleanup_is_not_cancelled_in_bulk(core: Core, clock: DatabaseClock) -> None:
    [job] = await submit(core, "locking", payload={"lock": "t"})
    await (await worker(core)).claim_one("locking")
    await core.cancel([job], actor="ops")
    await clock.advance(seconds=1)
    outcome = await turn(core, clock, "cancel", Filter(kind="locking"), Line())
    assert outcome.result["matched"] == 0


async def test_what_the_action_cannot_touch_matches_nothing(core: Core) -> None:
    await submit(core, n=3)
    assert await reading.count(core.db, bulk.narrow("retry", Filter(status="pending"))) == Count(0, more=False)
    assert await reading.count(core.db, bulk.narrow("cancel", Filter(kind="plain"))) == Count(3, more=False)


def test_an_empty_filter_must_be_meant(clock: DatabaseClock) -> None:
    asked: dict[str, Any] = {
        "until": clock.at,
        "actor": "ops",
        "reason": None,
        "rights": bulk.Rights(),
    }
    with pytest.raises(Refused, match="every job"):
        bulk.payload("cancel", Filter(), all_jobs=False, **asked)
    assert bulk.payload("cancel", Filter(), all_jobs=True, **asked)["all"] is True


def test_rights_of_a_job_saved_before_a_grant_existed_are_what_they_were() -> None:
    saved = {
        "action": "retry",
        "filter": {"owner": "ann"},
        "until": "2026-11-18T12:00:00Z",
        "actor": "ann",
        "reason": None,
        "all": False,
        "no_parts_of": ["snapshot"],
        "engine_roles": ["people"],
        "engines": None,
        "destinations": [],
    }
    rights = BulkPayload.model_validate(saved)
    assert rights.granted == {"engine role": ["people"], "engine": None, "destination": [], "database": None}
    assert rights.no_parts_of == ["snapshot"]
    with pytest.raises(ValidationError):
        BulkPayload.model_validate(saved | {"engines": "all"})
