"""“Schedule…” on the page of an export or a snapshot: a form that has what it runs filled in, for analysts too."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from paddock.config import Config
from paddock.exports import mappings, snapshot_states, snapshots
from paddock.exports.scheduled import SCHEDULED
from paddock.exports.scheduled_snapshot import SCHEDULED as SCHEDULED_SNAPSHOT
from paddock.jobs import schedules
from paddock.jobs.core import Core
from paddock.jobs.schedules import Schedule
from paddock.web.schedule_form import Form, form_of, timing_of
from tests.dumps.api.inside import run_inside
from tests.snapshots.making import make_mapping, make_snapshot
from tests.web.signed_in import Browser, Open, answering, schedule, words_of
from tests.web.test_exports import make_export

COLUMNS: dict[str, Any] = {"columns": []}


@pytest.fixture
def core(exports_core: Core) -> Core:
    return exports_core


async def scheduled(core: Core, name: str) -> Schedule:
    found = await schedules.get(core.db, name)
    assert found is not None
    return found


async def test_an_analyst_schedules_an_export_as_it_is(
    core: Core, ann: Browser, open_browser: Open, exports_config: Config
) -> None:
    export = await make_export(core, name="Daily sales", sql="SELECT 1 AS a", engine="local")
    form = words_of(await ann.read(f"/schedules/-/new?of=export:{export.id}"))
    assert "Exports SELECT 1 AS a With local As parquet To files to download, a new export each time" in form

    made = await answering(core, lambda _: COLUMNS, schedule(ann, f"/exports/{export.id}"))
    assert (made.status_code, made.headers["location"]) == (303, "/schedules/daily-sales")
    found = await scheduled(core, "daily-sales")
    assert (found.owner, found.kind, found.cron) == ("ann", "scheduled_export", "5 2 * * 1-5")
    assert found.payload == {"name": "Daily sales", "sql": "SELECT 1 AS a", "engine": "local"}

    assert (await ann.done("/schedules/daily-sales/run", "/schedules/daily-sales")).startswith("/jobs/")
    [job] = await run_inside(core, exports_config, SCHEDULED)
    assert job.status == "completed", job.error_message
    assert f"/exports/{job.result['export']}" in await ann.read("/schedules/daily-sales")
    bob = await open_browser(owner="bob")
    await bob.read(f"/schedules/-/new?of=export:{export.id}", 404)
    await bob.read("/schedules/daily-sales", 404)


async def test_what_is_wrong_is_said_at_its_field_and_the_form_stays_for_its_export(core: Core, ann: Browser) -> None:
    export = await make_export(core, sql="SELECT 1 AS a", engine="local", destination="lake:out")
    page = f"/exports/{export.id}"
    assert "Each run would write to the same place" in words_of(
        await ann.read(f"/schedules/-/new?of=export:{export.id}")
    )
    for fields, told in (
        ({"at": "25:00"}, "Write the time of day, like 02:30."),
        ({"on": "* 9"}, "Choose the days on which it runs."),
        ({"name": "Not A Name"}, "A schedule's name is"),
        ({"timing": "every", "every": "10s"}, "The interval must be at least a minute."),
    ):
        answer = await schedule(ann, page, **fields)
        assert answer.status_code == 422, fields
        assert told in words_of(answer.text)
        assert f'name="of" value="export:{export.id}"' in answer.text
    assert (await ann.send("/schedules", f"/schedules/-/new?of=export:{export.id}", of="nonesuch:1")).status_code == 422
    for of in ("export:nonsense", "nonesuch:1", "export:019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7"):
        await ann.read(f"/schedules/-/new?of={of}", 404)


async def test_a_snapshot_is_made_anew_of_the_newest_version(core: Core, ann: Browser, exports_config: Config) -> None:
    mapping = await make_mapping(core, owner="ann", name="Air routes")
    first = await make_snapshot(core, mapping, owner="ann", engine="local", role="finance")
    assert "of its newest version each time" in words_of(await ann.read(f"/schedules/-/new?of=snapshot:{first.id}"))

    made = await schedule(ann, f"/snapshots/{first.id}", payload=asked_of(mapping.id, ttl="P7D"))
    assert (made.status_code, made.headers["location"]) == (303, "/schedules/air-routes")
    await ann.done("/schedules/air-routes/run", "/schedules/air-routes")
    [job] = await run_inside(core, exports_config, SCHEDULED_SNAPSHOT)
    assert job.status == "completed", job.error_message

    second = await snapshot_states.get(core.db, UUID(job.result["snapshot"]))
    assert second is not None
    assert (second.owner, second.engine, second.role, second.mapping_version) == ("ann", "local", "finance", 1)
    assert second.ttl is not None
    page = await ann.read("/schedules/air-routes")
    assert f'href="/snapshots/{second.id}"' in page
    await snapshots.cancel(core, second, actor="ann")
    assert "cancelled snapshot" in words_of(await ann.read("/schedules/air-routes"))


def asked_of(mapping: UUID, **fields: str) -> str:
    asked = {"mapping_id": str(mapping), "engine": "local", "role": "finance", **fields}
    return "{" + ", ".join(f'"{name}": "{value}"' for name, value in asked.items()) + "}"


async def test_a_mapping_that_is_not_theirs_is_refused_and_one_that_was_lost_ends_the_run(
    core: Core, ann: Browser, exports_config: Config
) -> None:
    fields = {"kind": "scheduled_snapshot", "timing": "every", "every": "1h", "priority": "3", "name": "n"}
    bobs = await make_mapping(core, owner="bob", name="bobs")
    text = await ann.refused("/schedules", "/schedules/-/new", 422, payload=asked_of(bobs.id), **fields)
    assert "There is no such mapping, or no such version of it." in text
    role = asked_of(bobs.id, role="secret-role")
    await ann.refused("/schedules", "/schedules/-/new", 403, payload=role, **fields)
    ttl = asked_of(bobs.id, ttl="yesterday")
    await ann.refused("/schedules", "/schedules/-/new", 422, payload=ttl, **fields)

    mine = await make_mapping(core, owner="ann", name="mine")
    await ann.done("/schedules", "/schedules/-/new", payload=asked_of(mine.id), **fields)
    await mappings.delete(core, mine.id, actor="ann", scope=None)
    await schedules.run(core, "n", actor="ann")
    [job] = await run_inside(core, exports_config, SCHEDULED_SNAPSHOT)
    assert (job.status, job.error_code) == ("failed", "not_found")
    assert "'ann' may not run this any more. There is no such mapping" in (job.error_message or "")


@pytest.mark.parametrize(
    ("on", "at", "cron"),
    [("* *", "02:30", "30 2 * * *"), ("1 *", "0:00", "0 0 1 * *"), ("* 0", "23:59", "59 23 * * 0")],
)
def test_days_in_words_are_a_cron_expression_and_read_back(on: str, at: str, cron: str) -> None:
    assert timing_of(Form(timing="days", on=on, at=at)) == (None, cron)
    read = form_of(schedule_at(cron))
    assert (read.timing, read.on, read.at) == ("days", on, at.zfill(5))


@pytest.mark.parametrize("cron", ["*/5 * * * *", "30 2 1 * 1", "0 0 * 1 *", "61 2 * * *", "30 2 * * 1-6"])
def test_what_the_days_cannot_say_stays_a_cron_expression(cron: str) -> None:
    read = form_of(schedule_at(cron))
    assert (read.timing, read.cron) == ("cron", cron)


def schedule_at(cron: str) -> Schedule:
    return Schedule(
        name="n",
        kind="probe",
        owner="ann",
        cron=cron,
        internal=False,
        next_at=None,
        last_at=None,
        last_job_id=None,
        skipped=0,
        last_problem=None,
        created_at=datetime.now(UTC),
    )
