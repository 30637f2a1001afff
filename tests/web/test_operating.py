"""Workers, kinds, schedules and groups as the server draws them: for each role, with odd texts, and what they refuse."""

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx2
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from pydantic import BaseModel, ConfigDict

import paddock
from paddock.api.app import create_app
from paddock.api.tokens import NewToken, Tokens
from paddock.config import Config
from paddock.db.pool import Database, Statement, Transaction
from paddock.jobs import grouping, reading, schedules, wire
from paddock.jobs.bulk import BULK
from paddock.jobs.core import Core, open_core
from paddock.jobs.figures import overviews
from paddock.jobs.figures.counting import refresh_figures
from paddock.jobs.figures.overviews import KindSeen, WorkerSeen
from paddock.jobs.figures.running import Held
from paddock.jobs.kinds import Kind, Kinds
from paddock.jobs.model import Group, GroupId, JobId, NewJob, SessionId
from paddock.jobs.schedules import NewSchedule
from paddock.metrics import Metrics
from paddock.web import glance, pages
from paddock.web.pages.groups import parts_of, time_left
from paddock.web.pages.workers import MOST_TILES, rows_of
from paddock.web.policy import in_short, policy_of
from paddock.web.schedule_form import short_duration, unmasked
from tests.conftest import DatabaseClock
from tests.kinds import ANYBODY, TEST_KINDS, Anything, nothing
from tests.playing import ALL_KINDS, PlayedWorker, read, served, submit, worker

ODD = "</script><b>&amp;\"' \u202eרע 🐎 " + "long" * 40
BASE = "http://paddock.test"


async def on_group_end(tx: Transaction, group: Group) -> None:
    if group.data.get("broken"):
        raise RuntimeError("The catalog is away.")


GROUPED = Kind(name="grouped", payload=Anything, handler=nothing, on_group_end=on_group_end, submit=ANYBODY)


class TableName(BaseModel):
    model_config = ConfigDict(extra="forbid")

    table: str
    password: str = ""


STRICT = Kind(name="strict", payload=TableName, handler=nothing, submit=frozenset({"ops", "admin"}))

Open = Callable[[str], Awaitable["Browser"]]


class Browser:
    """A signed-in browser without a screen: reads pages, and sends their forms with the token they carry."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client

    async def read(self, path: str, status: int = 200) -> str:
        answer = await self.client.get(path)
        assert answer.status_code == status, answer.text[-2000:]
        assert ODD[:12] not in answer.text, "markup of somebody's text"
        return answer.text

    async def send(self, path: str, page: str, **fields: str) -> httpx2.Response:
        token = re.search(r'name="csrf" value="([^"]+)"', await self.read(page))
        assert token is not None
        return await self.client.post(path, data={"csrf": token[1], **fields}, headers={"origin": BASE})

    async def done(self, path: str, page: str, **fields: str) -> str:
        """Where the form leads."""
        answer = await self.send(path, page, **fields)
        assert answer.status_code == 303, answer.text[-2000:]
        return str(answer.headers["location"])


@pytest.fixture
async def core(dsn: str) -> AsyncIterator[Core]:
    kinds = Kinds([*TEST_KINDS, GROUPED, STRICT, BULK])
    async with open_core(dsn, kinds, metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


@pytest.fixture
def app(core: Core) -> FastAPI:
    return create_app(core, Config(), routes=pages.routes())


@pytest.fixture
async def signed_in(app: FastAPI, core: Core) -> AsyncIterator[Open]:
    async with contextlib.AsyncExitStack() as stack:

        async def make(role: str) -> Browser:
            owner = {"analyst": "ann", "ops": "olga", "admin": "ruth"}[role]
            new = NewToken(name=owner, role=role, owner=owner)  # type: ignore[arg-type]
            _, secret = await Tokens(core.db).create(new, actor="test")
            client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE)
            await stack.enter_async_context(client)
            answer = await client.post("/sign-in", data={"token": secret}, headers={"origin": BASE})
            assert answer.status_code == 303
            return Browser(client)

        yield make


@pytest.fixture
async def ops(signed_in: Open) -> Browser:
    return await signed_in("ops")


@pytest.fixture
def read_of_late(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements that are run from now on."""
    names: list[str] = []
    fetch = Database.fetch

    async def noted(self: Database, statement: Statement, *arguments: object) -> Any:
        names.append(statement.name)
        return await fetch(self, statement, *arguments)

    monkeypatch.setattr(Database, "fetch", noted)
    return names


def words_of(page: str) -> str:
    """What a person reads, without the frame around it."""
    main = page.partition("<main")[2].partition("</main>")[0]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", main)))


def row_of(page: str, id: str) -> str:
    found = re.search(rf'<tr id="{re.escape(id)}">.*?</tr>', page, re.DOTALL)
    assert found is not None, f"no row {id}"
    return found[0]


async def odd_worker(core: Core, name: str, version: str = "test", slots: int = 10) -> PlayedWorker:
    link = core.link()
    message = wire.Register(worker_id=name, version=version, kinds=list(ALL_KINDS), slots=slots)
    return PlayedWorker(link, (await link.register(message)).session)


# workers


async def test_without_workers_the_page_says_how_to_start_one(ops: Browser) -> None:
    text = words_of(await ops.read("/workers"))
    assert "No worker is connected: nothing runs." in text
    assert "paddock tokens create --role worker" in text
    assert "paddock worker --server URL --token-file FILE" in text


async def test_workers_show_what_they_run_how_far_it_is_and_who_is_late(
    core: Core, ops: Browser, clock: DatabaseClock
) -> None:
    busy, slow = await odd_worker(core, ODD), await odd_worker(core, "slow", slots=MOST_TILES + 1)
    [id] = await submit(core, owner=ODD)
    attempt = await busy.claim_one()
    held = wire.Held(id=attempt.job.id, attempt_id=attempt.job.attempt_id, report={"percent": 42, "phase": ODD})
    await clock.advance(seconds=31)
    await busy.link.beat(busy.session, wire.Beat(holding=[held]))

    page = await ops.read("/workers")
    assert "2 workers connected, 1 of 35 slots busy; 1 late." in words_of(page)
    row = row_of(page, f"worker-{busy.session}")
    assert "1 of 10 slots busy" in row
    assert len(re.findall(r'class="slot( busy)?"', row)) == 10
    assert "live" in words_of(f"<main>{row}</main>")
    late = row_of(page, f"worker-{slow.session}")
    assert 'class="status tone-bad"' in late
    assert "late" in late
    assert "<progress" in late, "too many slots for tiles"
    running = row_of(page, f"running-{id}")
    assert f'href="/jobs/{id}"' in running
    assert "42 %" in running


class Looked(list[Any]):
    """Counts how often it is walked through."""

    times = 0

    def __iter__(self) -> Iterator[Any]:
        self.times += 1
        return super().__iter__()


def test_what_many_workers_run_and_offer_is_looked_at_once_not_for_each() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    workers = [
        WorkerSeen(SessionId(uuid4()), f"w{n}", "1", kinds, 1, 1, True, quiet, False, at, at, at)
        for n, (kinds, quiet) in enumerate([(["a", "b"], False), (["b"], False), (["a", "c"], True)] * 10)
    ]
    jobs = [Held(JobId(uuid4()), one.session, "a", "ann", one.worker_id, at, None, False) for one in workers]
    live, held = Looked([*workers[:3], *workers[5::3]]), Looked(jobs)
    rows = rows_of(live, held, frozenset(), set())

    assert [row.alone for row in rows[:3]] == [["a"], [], ["c"]]
    assert all([job.session for job in row.held] == [row.seen.session] for row in rows)
    assert (live.times, held.times) == (2, 1)


async def test_a_mix_of_versions_is_said(core: Core, ops: Browser) -> None:
    await odd_worker(core, "new", paddock.__version__)
    assert "Versions differ" not in await ops.read("/workers")
    await odd_worker(core, "old", "0.0.1")
    text = words_of(await ops.read("/workers"))
    assert f"Versions differ: 0.0.1 on 1 worker and {paddock.__version__} on 1 worker" in text


async def test_a_worker_is_quieted_and_let_again_and_one_is_told_what_then_waits(core: Core, ops: Browser) -> None:
    played = await worker(core, "one")
    await submit(core)
    await played.claim_one()
    row = unescape(row_of(await ops.read("/workers"), f"worker-{played.session}"))
    assert "It ends 1 job it runs and claims nothing new until you resume it." in row
    assert "Nobody else offers fragile, locking, once" in row

    assert await ops.done(f"/workers/{played.session}/quiet", "/workers", quiet="on") == "/workers"
    page = await ops.read("/workers")
    assert "The worker ends what it runs and claims nothing new." in page
    assert "Resume one?" in row_of(page, f"worker-{played.session}")
    [seen] = await reading.workers(core.db)
    assert seen.quiet
    await ops.done(f"/workers/{played.session}/quiet", "/workers", quiet="off")
    [seen] = await reading.workers(core.db)
    assert not seen.quiet
    assert (await ops.send(f"/workers/{uuid4()}/quiet", "/workers")).status_code == 404


async def test_a_dead_worker_is_shown_with_what_it_held(core: Core, ops: Browser, clock: DatabaseClock) -> None:
    [given_back] = await submit(core)
    [lost] = await submit(core, "once")
    dead = await worker(core, "dead")
    await dead.claim()
    leaving = await worker(core, "leaving")
    await leaving.beat(dying=True)
    await served(core, clock, seconds=70)

    page = await ops.read("/workers")
    row = row_of(page, f"gone-{dead.session}")
    assert "lost" in row
    assert f'href="/jobs/{given_back}"' in row
    assert f'href="/jobs/{lost}"' in row
    assert "failed" in row
    assert "given back" in row
    assert "it gave all back" in row_of(page, f"gone-{leaving.session}")


# kinds


async def test_kinds_tell_their_policy_backlog_failures_and_who_offers_them(core: Core, ops: Browser) -> None:
    played = await worker(core, "one")
    await submit(core, n=4)
    await submit(core, "grouped", n=3)
    for place, attempt in enumerate(await played.claim("plain")):
        error = wire.Error(code="role_denied", message=ODD)
        await (attempt.finish("permanent", error=error) if place == 0 else attempt.finish())
    await refresh_figures(core.db)

    page = await ops.read("/kinds")
    assert re.search(r"No live worker offers [^.]*grouped, [^.]*strict", words_of(page))
    assert "1 kind has failures in the last hour." in words_of(page)
    plain = row_of(page, "kind-plain")
    assert "25 %" in plain
    assert "role_denied" in plain
    assert "3 completed, 1 failed in the last hour" in plain
    assert 'title="one"' in plain
    grouped = row_of(page, "kind-grouped")
    assert "no worker" in grouped
    assert 'href="/jobs?kind=grouped&amp;status=pending">3</a>' in grouped
    assert "one at a time" in row_of(page, "kind-serial")

    one = words_of(await ops.read("/kinds/plain"))
    assert "1 live worker offers it. No jobs wait; none runs." in one
    assert "25 % of 4 jobs failed" in one
    assert "role_denied" in one
    for within in ("24h", "7d", "nonsense"):
        assert 'id="chart-duration"' in await ops.read(f"/kinds/plain?range={within}")
    await ops.read("/kinds/nonesuch", 404)


async def test_a_kind_that_a_scaler_brings_workers_for_is_well_without_one(
    core: Core, clock: DatabaseClock, ops: Browser
) -> None:
    await overviews.declare_scaled(core.db, ["plain"])
    await submit(core)
    await refresh_figures(core.db)
    assert "scaled to none" in row_of(await ops.read("/kinds"), "kind-plain")
    assert "No worker runs now: a scaler brings one when there is work. 1 job waits" in words_of(
        await ops.read("/kinds/plain")
    )
    await clock.advance(minutes=3)
    await refresh_figures(core.db)
    assert "no worker" in row_of(await ops.read("/kinds"), "kind-plain")
    assert "No live worker offers it: its jobs wait." in words_of(await ops.read("/kinds/plain"))


async def test_a_region_of_a_kind_reads_only_what_it_shows_and_its_charts_are_read_once_for_all(
    ops: Browser, read_of_late: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glance, "time", SimpleNamespace(monotonic=lambda: 0.0))

    async def read_for(region: str) -> set[str]:
        read_of_late.clear()
        answer = await ops.client.get("/kinds/plain", headers={"x-paddock-regions": region})
        assert set(answer.json()["regions"]) == {"standing", region}
        return set(read_of_late)

    now, failures, figures = [await read_for(region) for region in ("now", "kind_failures", "figures")]
    assert "sessions_seen" in now - figures - failures
    assert "error_groups" in failures - now - figures
    assert {"ended_by_kind", "along", "ended_series"} <= figures - now - failures
    assert "ended_series" not in await read_for("figures")


async def test_a_kind_is_paused_for_a_reason_and_resumed(core: Core, ops: Browser) -> None:
    await submit(core, n=3)
    await refresh_figures(core.db)
    asked = unescape(row_of(await ops.read("/kinds"), "kind-plain"))
    assert "until somebody resumes it: 3 pending jobs wait" in asked

    assert await ops.done("/kinds/plain/pause", "/kinds", reason=ODD) == "/kinds"
    page = await ops.read("/kinds")
    assert "Paused: plain." in words_of(page)
    row = unescape(row_of(page, "kind-plain"))
    assert "by olga" in row
    assert "gnol" not in row, "the text as it was written"
    assert "Workers claim it again, the most urgent first: 3 pending jobs wait." in row
    assert await ops.done("/kinds/plain/resume", "/kinds", **{"from": "kind"}) == "/kinds/plain"
    own = words_of(await ops.read("/kinds/plain"))
    assert "resumed" in own
    assert "paused" in own, "the audit log of both"
    assert (await ops.send("/kinds/nonesuch/pause", "/kinds")).status_code == 404


async def test_an_analyst_sees_policies_but_nothing_of_others_work(core: Core, signed_in: Open) -> None:
    await submit(core, owner="bob", n=5)
    await worker(core, "secret-worker")
    await core.pause("other", actor="olga", reason="secret reason")
    await refresh_figures(core.db)
    analyst = await signed_in("analyst")
    for path in ("/kinds", "/kinds/plain", "/kinds/other"):
        page = await analyst.read(path)
        for told in ("secret-worker", "secret reason", "olga", "/pause", "chart-", "jobs wait"):
            assert told not in page, (path, told)
    assert "internal_only" in (await analyst.read("/kinds"))
    await analyst.read("/kinds/bulk", 404)
    region = await analyst.client.get("/kinds/plain", headers={"x-paddock-regions": "kind_failures,figures,now"})
    assert region.status_code == 200
    await analyst.read("/workers", 403)
    for path in ("/kinds/plain/pause", f"/workers/{uuid4()}/quiet"):
        assert (await analyst.send(path, "/kinds/plain")).status_code == 403


def test_policies_are_sentences() -> None:
    """Every kind of the tests: the ones with a time-out, a lock, a cleanup, none of it."""
    texts = {kind.name: dict(policy_of(seen_of(kind), kind)) for kind in TEST_KINDS}
    assert texts["timed"]["Time-outs"] == "A turn may take 5 min, all of it 1 h and 20 min without saved progress."
    assert texts["plain"]["Time-outs"].startswith("None")
    assert texts["once"]["Lost workers"] == "It must not be repeated: if its worker dies it fails as `worker_lost`."
    assert texts["patient"]["Lost workers"].startswith("Given back 10 min after its worker's death")
    assert texts["locking"]["Locks"].startswith("One live job for each lock")
    assert texts["serial"]["At once"] == "One at a time, anywhere."
    assert texts["internal_only"]["Submitted by"].startswith("nobody")
    assert texts["plain"]["Submitted by"] == "the roles admin, analyst and ops"
    assert in_short(seen_of(TEST_KINDS[7])) == (
        "5 retries 1 min to 5 min apart, turn ≤ 5 min, whole ≤ 1 h, stall ≤ 20 min, cleans up"
    )
    assert texts["webhook"]["At once"] == "40 on each worker, of which one owner has 10 at most and one receiver 5."
    assert dict(policy_of(seen_of(TEST_KINDS[0]), None))["Locks"].startswith("Unknown")


def seen_of(kind: Kind) -> KindSeen:
    return KindSeen(
        name=kind.name,
        submit=None if kind.submit is None else sorted(kind.submit),
        internal=kind.internal,
        housekeeping=kind.housekeeping,
        serial=kind.serial,
        may_repeat=kind.may_repeat,
        has_cleanup=kind.cleanup is not None,
        backoff_first=kind.retry.first,
        backoff_cap=kind.retry.cap,
        failure_limit=kind.retry.limit,
        cluster_limit=kind.retry.cluster_limit,
        loss_limit=kind.retry.loss_limit,
        turn_timeout=kind.turn_timeout,
        total_timeout=kind.total_timeout,
        stall_timeout=kind.stall_timeout,
        patience=kind.patience,
        paused=False,
        paused_at=None,
        paused_by=None,
        pause_reason=None,
        offered=True,
    )


# schedules


async def test_a_schedule_is_made_run_changed_switched_and_deleted(core: Core, ops: Browser) -> None:
    assert "paddock schedules create" in await ops.read("/schedules")
    made = {
        "name": "nightly",
        "kind": "strict",
        "timing": "cron",
        "cron": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "payload": '{"table": "flights", "password": "hunter2"}',
        "priority": "2",
        "tags": "finance, " + ODD[:90].replace(",", ""),
        "enabled": "on",
    }
    assert await ops.done("/schedules", "/schedules/-/new", **made) == "/schedules/nightly"
    page = await ops.read("/schedules/nightly")
    assert "hunter2" not in page
    assert len(re.findall("02:30 CES?T", page)) == 5, "the next five times, in its zone"
    listed = row_of(await ops.read("/schedules"), "schedule-nightly")
    assert "Europe/Berlin" in listed
    assert "never" in listed

    to = await ops.done("/schedules/nightly/run", "/schedules")
    job = to.removeprefix("/jobs/")
    assert f'href="{to}"' in row_of(await ops.read("/schedules"), "schedule-nightly")
    assert f'id="run-{job}"' in await ops.read("/schedules/nightly")

    form = unescape(await ops.read("/schedules/nightly/edit"))
    assert "hunter2" not in form
    assert '"password": "***"' in form
    changed = {**made, "payload": '{"table": "trains", "password": "***"}', "timing": "every", "every": "15m"}
    assert await ops.done("/schedules/nightly/edit", "/schedules/nightly/edit", **changed) == "/schedules/nightly"
    found = await schedules.get(core.db, "nightly")
    assert found is not None
    assert (found.payload, found.every, found.cron) == (
        {"table": "trains", "password": "hunter2"},
        timedelta(minutes=15),
        None,
    )
    assert "nightly was changed: cron, every and payload." in await ops.read("/schedules/nightly")
    await ops.done("/schedules/nightly/edit", "/schedules/nightly/edit", **changed)
    assert "Nothing was changed." in await ops.read("/schedules/nightly")

    back = await ops.done("/schedules/nightly/switch", "/schedules/nightly", enabled="off", **{"from": "schedule"})
    assert back == "/schedules/nightly"
    assert "None: it is disabled." in await ops.read("/schedules/nightly")
    assert await ops.done("/schedules/nightly/delete", "/schedules/nightly") == "/schedules"
    await ops.read("/schedules/nightly", 404)
    assert (await read(core, JobId(UUID(job)))).schedule == "nightly"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", "Not A Name", "A schedule's name is"),
        ("name", "taken", "There is a schedule 'taken' already."),
        ("kind", "", "Choose the kind"),
        ("kind", "nonesuch", "There is no kind 'nonesuch'."),
        ("kind", "internal_only", "only Paddock itself makes such jobs"),
        ("cron", "", "Write when it runs"),
        ("cron", "every day", "is not a cron expression"),
        ("cron", "0 0 30 2 *", "is not a cron expression"),
        ("timezone", "Mars/Olympus", "There is no time zone"),
        ("payload", "{", "not valid JSON"),
        ("payload", "[1]", "The payload is a JSON object"),
        ("payload", '{"table": 1}', "payload.table"),
        ("payload", '{"tables": "<b>"}', "payload"),
        ("priority", "9", "Choose 1 (urgent)"),
        ("tags", "x" * 101, "At most 20 tags"),
    ],
)
async def test_what_is_wrong_with_a_schedule_is_said_at_its_field(
    core: Core, ops: Browser, field: str, value: str, message: str
) -> None:
    await schedules.create(core, NewSchedule(name="taken", kind="plain", owner="olga", cron="0 0 * * *"), actor="olga")
    good = {"name": "fine", "kind": "strict", "timing": "cron", "cron": "0 0 * * *", "timezone": "UTC", "priority": "3"}
    good |= {"payload": '{"table": "t"}', "tags": "", "enabled": "on"}
    answer = await ops.send("/schedules", "/schedules/-/new", **{**good, field: value})
    assert answer.status_code == 422
    page = answer.text
    assert "<b>" not in page
    problem = re.search(rf'id="problem-{field}">(.*?)</p>', page, re.DOTALL)
    assert problem is not None, re.findall(r'id="problem-\w+">.*?</p>', page)
    assert message in unescape(problem[1])
    assert re.search(
        rf'id="field-{field}"[^>]*aria-describedby="about-{field} problem-{field}" aria-invalid="true"', page
    )
    assert 'value="fine"' in page or field == "name", "what was written stays"
    assert await schedules.get(core.db, "fine") is None


async def test_what_no_database_can_store_is_left_out_of_a_schedule(core: Core, ops: Browser) -> None:
    fields = {"name": "fine\0", "kind": "plain\0", "timing": "cron", "cron": "0 0 * * *\0", "timezone": "\0"}
    await ops.done("/schedules", "/schedules/-/new", **fields, priority="3", payload="{}", tags="a\0, \0", enabled="on")
    made = await schedules.get(core.db, "fine")
    assert made is not None
    assert (made.kind, made.cron, made.timezone, list(made.tags)) == ("plain", "0 0 * * *", "UTC", ["a"])


async def test_intervals_are_checked_and_foreseen(ops: Browser) -> None:
    for zone in ("&timezone=UTC", "&timezone="):
        times = await ops.read(f"/schedules/-/times?timing=every&every=90m{zone}")
        assert times.count("<li>") == 5
        assert "<html" not in times
    for query, message in (
        ("timing=every&every=soon", "Write a duration like 15m"),
        ("timing=every&every=0s", "The interval must lie between"),
        ("timing=every&every=999999999w", "That is too long."),
        ("timing=cron&cron=<b>", "is not a cron expression"),
        ("timing=cron", "Write when it runs"),
    ):
        text = unescape(await ops.read(f"/schedules/-/times?{query}"))
        assert message in text
        assert "<li>" not in text


async def test_paddocks_own_schedules_can_only_be_run_and_switched(core: Core, ops: Browser) -> None:
    await schedules.ensure(core, "own", "plain", timedelta(minutes=5))
    page = await ops.read("/schedules/own")
    assert "/schedules/own/edit" not in page
    assert "/schedules/own/delete" not in page
    assert (await ops.send("/schedules/own/delete", "/schedules")).status_code == 409
    answer = await ops.send("/schedules/own/edit", "/schedules", kind="plain", timing="every", every="1h", priority="3")
    assert answer.status_code == 409
    await ops.done("/schedules/own/switch", "/schedules", enabled="off")


async def test_an_analyst_sees_no_schedules_but_their_own(core: Core, signed_in: Open) -> None:
    await schedules.create(core, NewSchedule(name="olgas", kind="plain", owner="olga", cron="0 0 * * *"), actor="olga")
    await schedules.ensure(core, "own", "plain", timedelta(minutes=5))
    await schedules.create(core, NewSchedule(name="anns", kind="plain", owner="ann", cron="0 0 * * *"), actor="ann")
    analyst = await signed_in("analyst")
    page = await analyst.read("/schedules")
    assert row_of(page, "schedule-anns")
    for name in ("olgas", "own"):
        assert f"schedule-{name}" not in page
        for path in (f"/schedules/{name}", f"/schedules/{name}/edit"):
            await analyst.read(path, 404)
        for change in ("run", "switch", "delete", "edit"):
            answer = await analyst.send(f"/schedules/{name}/{change}", "/schedules", enabled="off")
            assert answer.status_code == 404, (name, change)
    assert await analyst.done("/schedules/anns/switch", "/schedules", enabled="off") == "/schedules"
    assert await analyst.done("/schedules/anns/delete", "/schedules/anns") == "/schedules"
    assert [one.name for one in await schedules.page(core.db)] == ["olgas", "own"]


async def test_a_schedule_tells_of_its_last_problem(core: Core, ops: Browser, clock: DatabaseClock) -> None:
    new = NewSchedule(name="locked", kind="locking", owner="olga", every=timedelta(minutes=1), payload={"lock": ODD})
    await schedules.create(core, new, actor="olga")
    await submit(core, "locking", payload={"lock": ODD})
    await clock.advance(minutes=2)
    assert await schedules.run_due(core) == 0
    assert "locked could not create a job when last due." in words_of(await ops.read("/schedules"))
    row = row_of(await ops.read("/schedules"), "schedule-locked")
    assert "no job created" in row
    assert "lock_held" in row
    assert "It could not create a job when it was last due." in words_of(await ops.read("/schedules/locked"))


@pytest.mark.parametrize(
    ("every", "text"),
    [(None, ""), (900, "15m"), (3600, "1h"), (86_400 * 7, "1w"), (90, "90s"), (1.5, "PT1.5S")],
)
def test_an_interval_reads_as_one_types_it(every: float | None, text: str) -> None:
    assert short_duration(None if every is None else timedelta(seconds=every)) == text


def test_what_was_shown_masked_stays_what_it_was() -> None:
    real = {"password": "hunter2", "deep": [{"token": "abc", "n": 1}], "table": "t"}
    shown = {"password": "***", "deep": [{"token": "***", "n": 2}], "table": "u", "new": "***"}
    assert unmasked(shown, real) == {
        "password": "hunter2", "deep": [{"token": "abc", "n": 2}], "table": "u", "new": "***"
    }  # fmt: skip
    assert unmasked({"password": "other"}, real) == {"password": "other"}


# groups


async def make_group(core: Core, n: int, *, owner: str = "ann", seal: bool = True, **data: object) -> GroupId:
    async with core.db.transaction() as tx:
        group = await grouping.create(tx, "grouped", owner, data)
        await core.enqueue(tx, [NewJob("grouped", {}, owner=owner, group_id=group) for _ in range(n)])
        if seal:
            await grouping.seal(core, tx, group)
    return group


async def grouped_worker(core: Core) -> PlayedWorker:
    link = core.link()
    message = wire.Register(worker_id="one", version="test", kinds=["grouped"], slots=10)
    return PlayedWorker(link, (await link.register(message)).session)


async def test_open_groups_come_first_and_each_owner_sees_their_own(core: Core, ops: Browser, signed_in: Open) -> None:
    assert "No groups." in await ops.read("/groups")
    played = await grouped_worker(core)
    ended = await make_group(core, 1)
    await (await played.claim_one("grouped")).finish()
    opened = await make_group(core, 2, owner=ODD)
    page = await ops.read("/groups")
    assert page.index(f"group-{opened}") < page.index(f"group-{ended}")
    assert f"group-{ended}" not in await ops.read("/groups?state=open")

    analyst = await signed_in("analyst")
    own = await analyst.read("/groups")
    assert f"group-{ended}" in own
    assert str(opened) not in own
    await analyst.read(f"/groups/{opened}", 404)
    assert (await analyst.send(f"/groups/{opened}/retry", f"/groups/{ended}")).status_code == 404
    await ops.read("/groups?cursor=nonsense", 422)
    await ops.read(f"/groups/{uuid4()}", 404)


async def test_groups_are_paged(core: Core, ops: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.web.pages.groups.PAGE_LENGTH", 2)
    monkeypatch.setattr("paddock.web.pages.groups.FIRST_OPEN", 1)
    played = await grouped_worker(core)
    made = [await make_group(core, 1) for _ in range(6)]
    for attempt in (await played.claim("grouped"))[:3]:
        await attempt.finish()
    seen: list[str] = []
    first = path = "/groups"
    while path:
        page = await ops.read(path)
        seen += re.findall(r'<tr id="group-([^"]+)"', page)
        found = re.search(r'href="([^"]+)" rel="next"', page)
        path = "" if found is None else unescape(found[1])
    assert len(seen) == len(set(seen)) == 4, "one open one, and all three that ended"
    path = "/groups?state=open"
    assert path in unescape(await ops.read(first))
    opened: list[str] = []
    while path:
        page = await ops.read(path)
        opened += re.findall(r'<tr id="group-([^"]+)"', page)
        found = re.search(r'href="([^"]+)" rel="next"', page)
        path = "" if found is None else unescape(found[1])
    assert {*seen, *opened} == {str(id) for id in made}


async def test_a_group_shows_failed_jobs_first_and_retries_them(core: Core, ops: Browser) -> None:
    played = await grouped_worker(core)
    group = await make_group(core, 5, note=ODD, password="hunter2")
    attempts = await played.claim("grouped", limit=3)
    await attempts[0].finish("permanent", error=wire.Error(code="broken", message=ODD))
    await attempts[1].finish()

    page = await ops.read(f"/groups/{group}")
    assert "2 of 5 jobs ended, 1 failed." in words_of(page)
    assert "hunter2" not in page
    rows = re.findall(r'<tr id="job-([^"]+)"', page)
    assert rows[:2] == [str(attempts[0].id), str(attempts[2].id)], "failed, then running"
    assert len(rows) == 5
    assert f'href="/jobs?group={group}&amp;status=claimed"' in page
    assert "a hook of its kind will run" in page
    assert "Retry 1 failed job of this group?" in page

    to = await ops.done(f"/groups/{group}/retry", f"/groups/{group}", reason="again")
    bulk = await read(core, JobId(UUID(to.removeprefix("/jobs/"))))
    assert (bulk.kind, bulk.owner, bulk.payload["action"], bulk.payload["reason"]) == ("bulk", "olga", "retry", "again")
    assert bulk.payload["filter"]["group"] == str(group)
    assert bulk.payload["filter"]["status"] == ["failed"]


async def test_a_group_says_whether_its_hook_ran_and_whether_it_is_final(
    core: Core, ops: Browser, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    played = await grouped_worker(core)
    good, broken = await make_group(core, 1), await make_group(core, 1, broken=True)
    for attempt in await played.claim("grouped"):
        await attempt.finish("permanent")
    assert "its hook ran" in await ops.read(f"/groups/{good}")
    assert "its hook has failed" in await ops.read(f"/groups/{broken}")
    assert "Retry the failed" in await ops.read(f"/groups/{good}")
    await connection.execute("UPDATE groups SET final = true WHERE id = $1", good)
    assert "Retry the failed" not in await ops.read(f"/groups/{good}")
    unsealed = await make_group(core, 0, seal=False)
    assert "more jobs may be added" in await ops.read(f"/groups/{unsealed}")


def group_of(**counts: object) -> Group:
    now = datetime(2026, 11, 15, tzinfo=UTC)
    known = {"open": 0, "failed": 0, "cancelled": 0, "total": 0, "sealed": True, "data": {}, "ended_at": None}
    known |= {"final": False, "hook_due": False, "created_at": now}
    return Group(id=GroupId(uuid4()), kind="grouped", owner="ann", **{**known, **counts})  # type: ignore[arg-type]


def test_the_parts_of_a_bar_cover_it_and_a_small_one_is_seen() -> None:
    parts = parts_of(group_of(total=10_000, open=500, failed=1), {"claimed": 3, "pending": 497})
    shown = {part.status: part for part in parts}
    assert [part.n for part in parts] == [9_499, 1, 0, 3, 0, 497]
    assert shown["failed"].size >= 4
    assert shown["cancelled"].size == 0
    assert parts_of(group_of())[0].size == 0


def test_what_is_left_is_foretold_from_the_rate_so_far() -> None:
    now = datetime(2026, 11, 15, 0, 10, tzinfo=UTC)
    assert time_left(group_of(total=40, open=20), now) == timedelta(minutes=10)
    assert time_left(group_of(total=40, open=38), now) is None, "too few"
    assert time_left(group_of(total=40, open=20, sealed=False), now) is None
    assert time_left(group_of(total=40), now) is None
