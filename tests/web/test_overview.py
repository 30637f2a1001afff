"""The overview: its sentence, its marks, its tables; what an analyst sees of it."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from paddock.api import auditing
from paddock.api.app import create_app
from paddock.api.tokens import NewToken, Tokens
from paddock.config import Config
from paddock.jobs import wire
from paddock.jobs.core import Core
from paddock.jobs.figures.charting import Point, Series
from paddock.jobs.figures.counting import refresh_figures
from paddock.jobs.figures.hanging import Hanging
from paddock.jobs.figures.overviews import Counts, KindSeen, VersionChange, WorkerSeen
from paddock.jobs.figures.trends import ErrorGroup
from paddock.jobs.model import JobId
from paddock.jobs.schedule_runs import FailedSchedule
from paddock.web import pages
from paddock.web.charting import Chart, ChartLine, marks_of, script_json
from paddock.web.judging import Clause, Facts, judged, judged_own, spoken
from tests.playing import submit, worker
from tests.reading.rows import run

HUNG = JobId(UUID(int=7))
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
MARKUP = "<script>alert(1)</script> \u202eרע 🐎 " + "long" * 50


def minutes(n: float) -> timedelta:
    return timedelta(minutes=n)


def kind(name: str, **fields: Any) -> KindSeen:
    seen = KindSeen(
        name=name,
        submit=["ops"],
        internal=False,
        housekeeping=False,
        serial=False,
        may_repeat=True,
        has_cleanup=False,
        backoff_first=minutes(1),
        backoff_cap=minutes(5),
        failure_limit=5,
        cluster_limit=5,
        loss_limit=5,
        turn_timeout=None,
        total_timeout=None,
        stall_timeout=None,
        patience=timedelta(0),
        paused=False,
        paused_at=None,
        paused_by=None,
        pause_reason=None,
        offered=True,
    )
    return replace(seen, **fields)


def at_work(name: str = "w-1", **fields: Any) -> WorkerSeen:
    seen = WorkerSeen(
        session=uuid4(),  # type: ignore[arg-type]
        worker_id=name,
        version="1.0",
        kinds=["export", "dump"],
        slots=10,
        running=4,
        live=True,
        quiet=False,
        dying=False,
        started_at=NOW - minutes(300),
        beat_at=NOW - timedelta(seconds=5),
        expires_at=NOW + timedelta(seconds=55),
    )
    return replace(seen, **fields)


def errors(kind: str, code: str = "broken", n: int = 3, first: float = 40, mistakes: int = 0) -> ErrorGroup:
    return ErrorGroup(kind, code, n, mistakes, NOW - minutes(first), NOW - minutes(1), uuid4())


def hangs(kind: str, ago: float, *, overdue: bool = False) -> Hanging:
    return Hanging(HUNG, kind, NOW - minutes(ago), overdue)


WELL = Facts(
    now=NOW,
    kinds=[kind("export"), kind("dump"), kind("webhook", internal=True)],
    workers=[at_work(), at_work("serve-1", kinds=["webhook"])],
    beat=timedelta(seconds=10),
    counted_to=NOW - timedelta(seconds=8),
)


def gone(name: str, ago: float, **fields: Any) -> WorkerSeen:
    return at_work(name, live=False, beat_at=NOW - minutes(ago), expires_at=NOW - minutes(ago - 1), **fields)


def test_when_nothing_is_wrong_nothing_is_said() -> None:
    assert judged(WELL) == []
    # What somebody asked for wrongly is theirs.
    assert judged(replace(WELL, errors=[errors("export", "query_refused", n=3, mistakes=3)])) == []
    assert spoken([]) == "All well."


def test_a_worker_that_was_replaced_under_another_name_is_no_alarm() -> None:
    new = at_work("w-3", started_at=NOW - minutes(4))
    lost = gone("w-2", 5)

    assert judged(replace(WELL, workers=[new, lost])) == []
    for other in (
        at_work("w-3", started_at=NOW - minutes(60)),
        replace(new, kinds=["export"]),
        replace(new, dying=True),
    ):
        assert "worker w-2 stopped beating" in spoken(judged(replace(WELL, workers=[at_work(), other, lost]))).lower()


def test_a_newcomer_stands_for_one_lost_worker() -> None:
    new = at_work("w-4", started_at=NOW - minutes(4))
    [clause] = judged(replace(WELL, workers=[new, gone("w-2", 5), gone("w-3", 6)]))
    assert clause.text == "worker w-2 stopped beating"


@pytest.mark.parametrize(
    ("alarm", "happened", "later"),
    [
        ("workers", {"workers": [at_work(), gone("w-2", 5)]}, {"workers": [at_work(), gone("w-3", 1)]}),
        ("failures", {"errors": [errors("export")]}, {"errors": [replace(errors("export"), last_at=NOW)]}),
        ("deliveries", {"errors": [errors("webhook")]}, {"errors": [replace(errors("webhook"), last_at=NOW)]}),
        (
            "schedules",
            {"failed_schedules": [FailedSchedule("nightly", "x", NOW - minutes(9))]},
            {"failed_schedules": [FailedSchedule("nightly", "x", NOW)]},
        ),
    ],
)
def test_a_dismissed_alarm_stays_away_until_something_new_happens(
    alarm: str, happened: dict[str, Any], later: dict[str, Any]
) -> None:
    [clause] = judged(replace(WELL, **happened))
    assert clause.alarm == alarm
    assert clause.up_to is not None

    dismissed: dict[str, datetime] = {alarm: clause.up_to}
    assert judged(replace(WELL, **happened, dismissed=dismissed)) == []
    assert [one.alarm for one in judged(replace(WELL, **later, dismissed=dismissed))] == [alarm]


@pytest.mark.parametrize(
    ("changed", "text", "path", "query", "since"),
    [
        ({"workers": [at_work("serve-1", kinds=["webhook"])]}, "no worker is live", "/workers", {}, None),
        ({"workers": [gone("w-1", 7, dying=True)]}, "no worker is live", "/workers", {}, 7),
        ({"workers": [at_work(quiet=True)]}, "every worker is quiet and claims nothing", "/workers", {}, None),
        (
            {"kinds": [kind("export"), kind("dump", offered=False, pending=2, oldest_due=minutes(9))]},
            "no live worker offers dump",
            "/kinds",
            {},
            9,
        ),
        (
            {"workers": [at_work(), gone("w-2", 3)]},
            "worker w-2 stopped beating",
            "/workers",
            {},
            3,
        ),
        (
            {"workers": [at_work(), at_work("w-2", beat_at=NOW - minutes(0.6))]},
            "worker w-2 stopped beating",
            "/workers",
            {},
            0.6,
        ),
        (
            {"workers": [at_work(), gone("serve-2", 5, kinds=["webhook"])]},
            "replica serve-2 stopped beating",
            "/workers",
            {},
            5,
        ),
        ({"workers": [at_work(), gone("a", 5), gone("b", 2)]}, "2 workers stopped beating", "/workers", {}, 2),
        (
            {"hanging": [hangs("export", 7, overdue=True)]},
            "1 job of export runs past its time-out and is not stopped",
            f"/jobs/{HUNG}",
            {},
            7,
        ),
        (
            {"hanging": [hangs("export", 7, overdue=True), hangs("dump", 9, overdue=True)]},
            "2 jobs run past their time-out and are not stopped",
            "/workers",
            {},
            9,
        ),
        ({"hanging": [hangs("dump", 80)]}, "1 job of dump runs far longer than usual", f"/jobs/{HUNG}", {}, 80),
        ({"hanging": [hangs("dump", 80), hangs("a", 90)]}, "2 jobs run far longer than usual", "/workers", {}, 90),
        (
            {"errors": [errors("export")]},
            "3 failures of export in the last hour",
            "/jobs",
            {"kind": "export", "status": "failed", "error_code": "broken"},
            40,
        ),
        (
            {"errors": [errors("export", "mixed", n=3, mistakes=2), errors("export", "typo", n=9, mistakes=9)]},
            "1 failure of export in the last hour",
            "/jobs",
            {"kind": "export", "status": "failed", "error_code": "mixed"},
            40,
        ),
        (
            {"errors": [errors("export", "a", 1, 9), errors("export", "b", 1, 20)]},
            "2 failures of export in the last hour",
            "/jobs",
            {"kind": "export", "status": "failed"},
            20,
        ),
        (
            {"errors": [errors("export"), errors("dump", first=50), errors("ingest")]},
            "3 kinds have failures in the last hour",
            "/jobs",
            {"status": "failed"},
            50,
        ),
        (
            {"kinds": [kind("export", pending=4, oldest_due=minutes(4)), kind("dump", oldest_due=minutes(1))]},
            "oldest due job (export) waits",
            "/jobs",
            {"kind": "export", "status": "pending"},
            4,
        ),
        (
            {"errors": [errors("webhook", "http_500", 12)]},
            "12 webhook deliveries failed in the last hour",
            "/webhooks",
            {},
            40,
        ),
        (
            {"retried_deliveries": 1, "retried_since": NOW - minutes(6)},
            "1 webhook delivery waits for another try",
            "/jobs",
            {"kind": "webhook", "status": "pending"},
            6,
        ),
        ({"counted_to": NOW - minutes(3)}, "figures stand still", "/schedules", {}, 3),
        ({"drained": True, "drained_at": NOW - minutes(2)}, "drain mode is on", "/settings", {}, 2),
        (
            {"kinds": [kind("export", paused=True, paused_at=NOW - minutes(8), oldest_due=minutes(30))]},
            "paused: export",
            "/kinds",
            {},
            8,
        ),
    ],
)
def test_each_thing_that_is_wrong_is_one_clause(
    changed: dict[str, Any], text: str, path: str, query: dict[str, str], since: float | None
) -> None:
    [clause] = judged(replace(WELL, **changed))
    assert (clause.text, clause.path, clause.query) == (text, path, query)
    assert clause.since == (None if since is None else NOW - minutes(since))


def test_what_is_no_news_is_not_told() -> None:
    replaced = [at_work("w-1"), gone("w-1", 9)]
    ended = [at_work(), gone("w-2", 9, dying=True)]
    for workers in (replaced, ended):
        assert judged(replace(WELL, workers=workers)) == []
    idle = kind("dump", offered=False)
    housekeeping = kind("figures", offered=False, housekeeping=True, pending=1, oldest_due=minutes(9))
    short = kind("export", pending=9, oldest_due=minutes(0.9))
    assert judged(replace(WELL, kinds=[idle, housekeeping, short])) == []
    assert judged(replace(WELL, counted_to=None)) == [], "before the first figures"


def test_the_sentence_begins_with_what_stops_everything() -> None:
    facts = replace(
        WELL,
        kinds=[kind("a", paused=True), kind("b", paused=True), kind("c", offered=False, pending=1)],
        workers=[at_work(kinds=["a"]), gone("w-2", 3, kinds=["a"])],
        errors=[errors("a"), errors("webhook")],
        drained=True,
    )
    said = [clause.text for clause in judged(facts)]
    assert said == [
        "no live worker offers c",
        "worker w-2 stopped beating",
        "3 failures of a in the last hour",
        "3 webhook deliveries failed in the last hour",
        "drain mode is on",
        "paused: a and b",
    ]
    assert spoken(judged(facts)).startswith("No live worker offers c; worker w-2")


def test_many_names_are_a_number() -> None:
    paused = [kind(name, paused=True) for name in "abcd"]
    [clause] = judged(replace(WELL, kinds=paused, workers=[at_work(kinds=["a"])]))
    assert clause.text == "paused: 4 kinds"


def test_a_screen_reader_is_told_news_and_no_passing_seconds() -> None:
    def aloud(**changed: Any) -> str:
        return spoken(judged(replace(WELL, **changed)))

    def waiting(n: float) -> str:
        return aloud(kinds=[kind("export", pending=1, oldest_due=minutes(n))])

    assert aloud(errors=[errors("export", n=3)]) == aloud(errors=[errors("export", n=4)]) == "Jobs of export fail."
    assert waiting(5) == waiting(9) != waiting(15)
    assert "longer than 5 min" in waiting(9)


def test_an_analyst_is_told_of_their_own() -> None:
    counts = Counts({"export": {"failed": 1, "claimed": 2}, "dump": {"claimed": 1, "pending": 4}}, NOW, NOW)
    assert [(clause.text, clause.query["status"]) for clause in judged_own(counts)] == [
        ("1 job of yours failed in the last 24 h", "failed"),
        ("3 jobs running", "claimed"),
        ("4 jobs waiting", "pending"),
    ]
    assert judged_own(Counts({}, NOW, NOW)) == []


def change(action: str, subject: str, ago: float) -> dict[str, Any]:
    return {"action": action, "subject": subject, "at": NOW - minutes(ago), "actor": "olga", "reason": "why"}


def test_deploys_starts_pauses_and_drains_are_marks() -> None:
    workers = [
        at_work("a", started_at=NOW - minutes(500)),
        at_work("b", version="2.0", started_at=NOW - minutes(30)),
        at_work("c", version="2.0", started_at=NOW - minutes(29.5)),
        at_work("d", version="2.0", started_at=NOW - minutes(10)),
        at_work("e", version="2.0", started_at=NOW - minutes(90)),
    ]
    workers[-1] = replace(workers[-1], started_at=NOW - minutes(20))
    changes = [change("drain_on", "service", 5), change("pause", "kind:export", 40), change("resume", "kind:x", 70)]
    versions = [
        VersionChange("worker", NOW - minutes(15), ["1.0", "2.0", "3.0"], ["1.0", "2.0"]),
        VersionChange("worker", NOW - minutes(30), ["1.0"], ["1.0", "2.0"]),
        VersionChange("control plane", NOW - minutes(35), ["1.0"], ["2.0"]),
    ]
    marks = marks_of(workers, versions, changes, NOW - minutes(60), timedelta(seconds=10))
    assert [(mark.name, (NOW - mark.at) / minutes(1)) for mark in marks] == [
        ("drain on", 5),
        ("d started", 10),
        ("version 3.0 gone: no worker has it", 15),
        ("e started", 20),
        ("version 2.0 deployed: 2 workers", 30),
        ("version 2.0 deployed: control plane", 35),
        ("export paused", 40),
    ]
    assert {mark.sign for mark in marks} == {"D", "S", "V", "P"}


@pytest.mark.parametrize(
    ("metric", "unit", "newest", "oldest", "each"),
    [
        ("failures", "jobs", "7", "1", "Each row is the sum of 10 min."),
        ("throughput", "jobs/s", "0.12", "0.02", "Each row is the average of 10 min."),
        ("backlog", "jobs", "5", "1", "Each row is the highest of 10 min."),
    ],
)
def test_a_table_of_figures_leaves_nothing_out(metric: str, unit: str, newest: str, oldest: str, each: str) -> None:
    values: list[float | None] = [None] * 1440
    values[0], values[-3], values[-40] = 1, 5, 2
    for place in range(1380, 1440):
        values[place] = values[place] or 0
    values[1:60] = [0] * 59
    points = [Point(NOW + timedelta(seconds=10 * n), value) for n, value in enumerate(values)]
    chart = Chart("x", "X", [ChartLine("x", "bad", Series(metric, None, unit, timedelta(seconds=10), points))])
    rows = chart.rows
    assert len(rows) == 24
    assert (rows[0], rows[-1]) == ((NOW + timedelta(seconds=13_800), newest), (NOW, oldest))
    assert rows[5][1] == "–"
    assert chart.data["each"] == each


def test_what_a_script_reads_cannot_end_its_element() -> None:
    data = {"marks": [{"name": f"</script><!-- & {MARKUP}"}]}
    text = script_json(data)
    assert not set("<>&'") & set(text)
    assert json.loads(text) == data


class Looking:
    """Looks at the overview as somebody, each time anew: what it remembers for a second is forgotten."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.app = create_app(core, Config(), routes=pages.routes())

    async def __call__(
        self, path: str = "/", role: str = "ops", owner: str = "olga", **headers: str
    ) -> httpx2.Response:
        self.app.state.glances = self.app.state.standing = None
        tokens = Tokens(self.core.db)
        new = NewToken(name=owner, role=role, owner=owner)  # type: ignore[arg-type]
        _, secret = await tokens.create(new, actor="test")
        sent = {
            "authorization": f"Bearer {secret}",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        transport = httpx2.ASGITransport(self.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://paddock.test") as client:
            return await client.get(path, headers=sent)


@pytest.fixture
def look(core: Core) -> Looking:
    return Looking(core)


def verdict(page: str) -> str:
    [found] = re.findall(r'<p class="verdict.*?</p>', page, re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", found)).strip()


async def test_an_empty_installation_says_what_to_do(look: Looking) -> None:
    page = (await look()).text
    assert verdict(page) == "No worker is live."
    for command in ("paddock worker --server", "paddock jobs submit probe"):
        assert command in page
    assert page.count('class="nothing"') == 6, "no chart pretends to a scale"


async def test_what_people_ask_for_wrongly_is_listed_and_no_alarm(core: Core, look: Looking) -> None:
    await submit(core, n=3)
    one = await worker(core, "w-1")
    for attempt in await one.claim("plain", limit=3):
        error = wire.Error(code="query_refused", message="There is no table 'x'.", mistake=True)
        await attempt.finish("permanent", error=error)
    await refresh_figures(core.db)

    page = (await look()).text
    assert "failures of plain" not in verdict(page)
    assert 'href="/jobs?kind=plain&amp;status=failed&amp;error_code=query_refused"' in page


async def test_failures_counts_and_load_lead_to_what_they_count(core: Core, look: Looking) -> None:
    await submit(core, n=5)
    await submit(core, "other", n=2)
    one = await worker(core, "w <1>")
    for attempt in await one.claim("plain", limit=3):
        await attempt.finish("permanent", error=wire.Error(code="so <broken>", message=MARKUP))
    await one.claim("plain", limit=1)
    await refresh_figures(core.db)

    page = (await look()).text
    assert verdict(page).startswith("3 failures of plain in the last hour, first ")
    for link in (
        'href="/jobs?kind=plain&amp;status=failed"',
        'href="/jobs?kind=plain&amp;status=failed&amp;error_code=so+%3Cbroken%3E"',
        'href="/jobs?kind=plain&amp;status=claimed" aria-label="1 running, plain"',
        'href="/jobs?kind=other&amp;status=pending" aria-label="2 pending, other"',
        'href="/jobs?worker=w+%3C1%3E"',
    ):
        assert link in page, link
    assert 'value="1" max="10" aria-label="1 of 10 slots busy"' in page
    assert "so <broken>" not in page

    under = (await look(x_forwarded_prefix="/tools/paddock")).text
    assert 'href="/tools/paddock/jobs?kind=plain&amp;status=failed"' in under
    assert 'href="/jobs' not in under


async def test_every_range_has_its_charts_and_others_are_refused(core: Core, look: Looking) -> None:
    await submit(core)
    await (await (await worker(core)).claim_one()).finish()
    await refresh_figures(core.db)
    for name, points in {"15m": 90, "1h": 360, "24h": 288, "7d": 336}.items():
        page = (await look(f"/?range={name}")).text
        assert f'href="/?range={name}" aria-current="true"' in page
        found = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page)]
        assert [data["unit"] for data in found] == ["jobs/s", "jobs", "jobs", "seconds", "seconds", "jobs"]
        assert all(points - 1 <= len(line["values"]) <= points for data in found for line in data["lines"]), name
        assert page.count("in figures</caption>") == 6
    assert (await look("/?range=%3Cb%3E")).status_code == 422


async def test_a_job_that_nobody_stops_is_named_in_the_sentence(core: Core, look: Looking) -> None:
    [hung] = await submit(core, "timed")
    await (await worker(core)).claim("timed")
    await run(core.db, "UPDATE jobs SET claimed_at = claimed_at - interval '10 min'")
    page = (await look()).text
    assert "1 job of timed runs past its time-out and is not stopped, claimed 10 min ago" in verdict(page).replace(
        "Job", "job"
    )
    assert f'href="/jobs/{hung}" class="clause"' in page


async def test_what_people_did_is_marked_with_who_and_why(core: Core, look: Looking) -> None:
    await core.cancel(await submit(core), actor="olga", reason="no mark")
    await core.pause("plain", actor="olga", reason=MARKUP)
    await core.drain(True, actor="olga", reason="upgrade")
    page = (await look()).text
    for mark in ("plain paused", "drain on"):
        assert f">{mark}</bdi>" in page
    assert "<script>alert" not in page
    assert "no mark" not in page
    said = verdict(page)
    assert "drain mode is on for" in said
    assert "paused: plain, for" in said

    await run(core.db, "UPDATE audit_log SET id = paddock_id(paddock_now() - interval '2 h'), at = at - interval '2 h'")
    assert "No deploy, pause or drain in this time." in (await look("/?range=1h")).text
    assert "plain paused" in (await look("/?range=24h")).text


async def test_only_the_regions_asked_for_are_read_and_rendered(core: Core, look: Looking) -> None:
    answer = (await look(x_paddock_regions="summary")).json()["regions"]
    assert "verdict" in answer["summary"]
    assert set(answer) == {"standing", "summary"}
    assert look.app.state.glances._trends._known["1h"].trend is None, "no chart was read for it"


async def test_an_analyst_sees_their_own_newest_work_and_nothing_of_the_whole(core: Core, look: Looking) -> None:
    [theirs] = await submit(core, owner="bob", tags=["nobody else's"])
    [own, failed] = await submit(core, n=2, owner="ada")
    one = await worker(core, "secret-worker")
    for attempt in await one.claim("plain", limit=10):
        if attempt.id == failed:
            await attempt.finish("permanent", error=wire.Error(code="broken", message=MARKUP))
        if attempt.id == own:
            await run(core.db, 'UPDATE jobs SET report = \'{"percent": 40, "phase": "<i>"}\' WHERE id = $1', own)
    await refresh_figures(core.db)

    page = (await look(role="analyst", owner="ada")).text
    assert verdict(page) == "1 job of yours failed in the last 24 h; 1 job running."
    assert f'href="/jobs/{own}"' in page
    assert 'aria-label="40 %"' in page
    assert str(theirs) not in page
    for hidden in ("data-chart", "secret-worker", "Workers", "<script>alert", "<i>"):
        assert hidden not in page, hidden

    for region, part in (("summary", "verdict"), ("rows", str(own))):
        answer = (await look(role="analyst", owner="ada", x_paddock_regions=region)).json()["regions"]
        assert set(answer) == {"standing", region}
        assert part in answer[region]

    other = (await look(role="analyst", owner="eve")).text
    assert "You have no jobs yet." in other
    assert verdict(other).startswith("Nothing of yours runs or waits")


async def test_the_newest_of_several_actions_are_read_along_their_index(core: Core) -> None:
    await core.pause("plain", actor="olga", reason=None)
    await core.drain(False, actor="olga", reason=None)
    for _ in range(3):
        await core.resume("plain", actor="olga", reason=None)
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    found = await auditing.of_actions(core.db, ["pause", "resume"], since=long_ago, limit=2)
    assert [entry["action"] for entry in found] == ["resume", "resume", "pause"]
    assert await auditing.of_actions(core.db, ["pause"], since=datetime(2999, 1, 1, tzinfo=UTC), limit=2) == []


def test_every_clause_leads_to_a_page_of_ours() -> None:
    known = {route.path for route in pages.routes()}
    assert {"/workers", "/kinds", "/jobs", "/webhooks", "/schedules", "/settings"} <= known
    assert Clause("x", "/jobs").spoken == "x"
