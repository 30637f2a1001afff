"""A worker's token is for its kinds: what it may write to, and what a finish of it may make beside the result."""

from collections.abc import AsyncIterator
from typing import Any, TypeAlias
from uuid import uuid4

import asyncpg
import httpx2
import pytest
from prometheus_client import CollectorRegistry

from paddock.config import Config
from paddock.jobs import wire
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.kinds import Kinds
from paddock.jobs.link import SessionUnknown
from paddock.jobs.model import NewJob
from paddock.known_kinds import all_kinds
from paddock.metrics import Metrics
from tests.api.conftest import Clients
from tests.kinds import TEST_KINDS
from tests.playing import Attempt, PlayedWorker, read, submit

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

BULK = {
    "action": "cancel",
    "filter": {"owner": "ann"},
    "until": "2100-01-01T00:00:00Z",
    "actor": "root",
    "engine_roles": None,
    "all": True,
}


@pytest.fixture
async def core(dsn: str, settings: CoreSettings) -> AsyncIterator[Core]:
    kinds = Kinds([*all_kinds(Config()), *TEST_KINDS])
    async with open_core(dsn, kinds, settings, metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


async def worker(core: Core, *kinds: str, internal: bool = False) -> PlayedWorker:
    link = core.link(kinds=kinds or None, internal=internal)
    registered = await link.register(wire.Register(worker_id="w", version="1", kinds=list(kinds)))
    return PlayedWorker(link, registered.session)


async def live(connection: Connection) -> list[tuple[str, str]]:
    rows = await connection.fetch("SELECT kind, owner FROM jobs WHERE cleanup_of IS NULL ORDER BY id")
    return [(row["kind"], row["owner"]) for row in rows]


async def finish(worker: httpx2.AsyncClient, **made: Any) -> dict[str, Any]:
    """As the holder of a token for probes would: register, claim, and a finish that asks for more."""
    session = (
        await worker.post("/internal/sessions", json={"worker_id": "w", "version": "1", "kinds": ["probe"]})
    ).json()["session"]
    body = {"session": session, "claim_id": str(uuid4()), "kinds": ["probe"], "limit": 1}
    [job] = (await worker.post("/internal/jobs/claim", json=body)).json()["jobs"]
    item = {"id": job["id"], "attempt_id": job["attempt_id"], "outcome": "done", **made}
    answer = await worker.post("/internal/jobs/finish", json={"items": [item]})
    assert answer.status_code == 200, answer.text
    return item


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("bulk", BULK),
        ("remove_files", {"prefixes": ["exports/"]}),
        ("remove_dump", {"dump_id": "dump_1"}),
        ("upkeep", {}),
        ("scheduled_export", {"sql": "SELECT 1", "engine": "duckdb"}),
        ("scheduled_dump", {}),
        ("webhook", {"event_id": str(uuid4()), "webhook_id": str(uuid4())}),
        ("export", {}),
        ("probe", {}),
    ],
)
async def test_a_probe_makes_no_other_job(
    clients: Clients, core: Core, connection: Connection, kind: str, payload: dict[str, Any]
) -> None:
    assert kind in core.kinds
    await clients.token("prober", "worker", kinds=["probe"])
    [id] = await submit(core, "probe", owner="mallory")
    [victim] = await submit(core, "plain", owner="ann")

    follow_up = {"kind": kind, "payload": payload, "owner": "root", "actor": "root"}
    item = await finish(await clients("prober"), follow_ups=[follow_up])

    job = await read(core, id)
    assert (job.status, job.error_code) == ("failed", "invalid_follow_up")
    assert job.error_message is not None
    assert f"'{kind}'" in job.error_message
    assert await live(connection) == [("plain", "ann")]
    assert (await read(core, victim)).status == "pending"
    again = await (await clients("prober")).post("/internal/jobs/finish", json={"items": [item]})
    assert again.json()["verdicts"][0]["verdict"] == "already_yours"


@pytest.mark.parametrize("type", ["job.failed", "job.completed", "dump.completed", "own", "webhook.test"])
async def test_a_probe_tells_of_nothing(clients: Clients, core: Core, connection: Connection, type: str) -> None:
    await clients.token("prober", "worker", kinds=["probe"])
    [id] = await submit(core, "probe")
    await finish(await clients("prober"), events=[{"type": type, "subject": "job:1", "owner": "root"}])
    job = await read(core, id)
    assert (job.status, job.error_code) == ("failed", "invalid_event")
    assert await connection.fetchval("SELECT count(*) FROM events") == 0


async def test_one_that_asks_for_too_much_spoils_no_other(core: Core, connection: Connection) -> None:
    await submit(core, n=3)
    attempts = await (await worker(core, "plain")).claim("plain")
    items = [
        wire.FinishItem(
            id=attempt.id,
            attempt_id=attempt.job.attempt_id,
            outcome="done",
            follow_ups=[wire.FollowUp(kind=kind, payload={})],
        )
        for attempt, kind in zip(attempts, ["other", "patient", "other"], strict=True)
    ]
    await core.link(kinds=["plain"]).finish(wire.Finish(items=items))
    assert [(await read(core, attempt.id)).status for attempt in attempts] == ["completed", "failed", "completed"]
    assert await live(connection) == [("other", "ann")] * 2


async def test_no_declaration_opens_what_runs_inside(core: Core, connection: Connection) -> None:
    assert "webhook" in core.kinds["plain"].follow_ups
    await submit(core)
    attempt = await (await worker(core, "plain")).claim_one("plain")
    payload = {"event_id": str(uuid4()), "webhook_id": str(uuid4())}
    await attempt.finish(follow_ups=[wire.FollowUp(kind="webhook", payload=payload)])
    assert (await read(core, attempt.id)).error_code == "invalid_follow_up"
    assert await live(connection) == []


async def test_the_worker_inside_makes_what_it_likes(core: Core, connection: Connection) -> None:
    await core.submit([NewJob("collect_leftovers", {}, owner="ann")], public=False)
    inside = await worker(core, internal=True)
    attempt = await inside.claim_one("collect_leftovers")
    made = wire.FollowUp(kind="remove_files", payload={"prefixes": []})
    assert await attempt.finish(follow_ups=[made], events=[wire.Event(type="any", subject="x")]) == "accepted"
    assert (await read(core, attempt.id)).status == "completed"
    assert await live(connection) == [("remove_files", "ann")]


async def test_what_a_kind_declares_is_waited_for_where_it_is_not_known(core: Core) -> None:
    """A replica of another version, or one whose package is broken, must not throw away what another knows."""
    [id] = await submit(core)
    attempt = await (await worker(core, "plain")).claim_one("plain")
    core.kinds._by_name.pop("plain")
    await attempt.finish(events=[wire.Event(type="own", subject="x")])
    job = await read(core, id)
    assert (job.status, job.error_code) == ("pending", "unknown_kind")


class TestAnotherKindsAttempt:
    """Its id is no secret: timelines show it."""

    @pytest.fixture
    async def attempt(self, core: Core) -> Attempt:
        await submit(core, "locking", payload={"lock": "t"})
        return await (await worker(core, "locking")).claim_one("locking")

    @pytest.fixture
    def thief(self, core: Core, attempt: Attempt) -> Attempt:
        core.job_kinds._known.clear()  # as in a replica that did not see the claim
        return Attempt(core.link(kinds=["probe"]), attempt.job)

    async def test_is_not_finished(self, core: Core, thief: Attempt) -> None:
        for outcome in ("done", "again", "transient", "permanent"):
            assert await thief.finish(outcome) == "unknown"
        assert (await read(core, thief.id)).status == "claimed"

    async def test_is_not_saved_or_released(self, core: Core, attempt: Attempt, thief: Attempt) -> None:
        assert await thief.save({"mine": True}) == "unknown"
        assert await thief.release() == "unknown"
        job = await read(core, thief.id)
        assert (job.status, job.saved) == ("claimed", None)
        assert await attempt.finish() == "accepted", "its own worker is not held up"

    async def test_gets_no_log_lines_and_no_report(
        self, core: Core, connection: Connection, attempt: Attempt, thief: Attempt
    ) -> None:
        line = wire.LogItem(id=attempt.job.id, attempt_id=attempt.job.attempt_id, seq=1, lines="forged\n")
        await thief.link.logs(wire.Logs(items=[line]))
        held = wire.Held(id=attempt.job.id, attempt_id=attempt.job.attempt_id, report={"percent": 99})
        await thief.link.beat(uuid4(), wire.Beat(holding=[held], renew=False))
        assert await connection.fetchval("SELECT count(*) FROM job_logs") == 0
        assert (await read(core, thief.id)).report is None
        await attempt.link.logs(wire.Logs(items=[line]))
        assert await connection.fetchval("SELECT count(*) FROM job_logs") == 1

    async def test_among_ones_own_is_left_out_and_each_gets_its_verdict(self, core: Core, thief: Attempt) -> None:
        await submit(core, "probe", n=2)
        first, second = await (await worker(core, "probe")).claim("probe")
        items = [
            wire.FinishItem(id=one.id, attempt_id=one.job.attempt_id, outcome="done") for one in (first, thief, second)
        ]
        answer = await thief.link.finish(wire.Finish(items=items))
        assert [(verdict.id, verdict.verdict) for verdict in answer.verdicts] == [
            (first.id, "accepted"),
            (thief.id, "unknown"),
            (second.id, "accepted"),
        ]

    async def test_named_beside_ones_own_job_frees_no_cleanup(
        self, core: Core, connection: Connection, attempt: Attempt, thief: Attempt
    ) -> None:
        await core.cancel([attempt.id], actor="ann")
        await submit(core, "probe")
        own = await (await worker(core, "probe")).claim_one("probe")
        waiting = "SELECT count(*) FROM jobs WHERE after_attempt IS NOT NULL"
        item = wire.ReleaseItem(id=own.id, attempt_id=attempt.job.attempt_id)
        await thief.link.release(wire.Release(items=[item]))
        assert await connection.fetchval(waiting) == 1, "the attempt may still be at work"
        await attempt.release()
        assert await connection.fetchval(waiting) == 0

    async def test_comes_with_no_repeated_claim(self, core: Core) -> None:
        [id] = await submit(core, "plain")
        # It said at first that it would run probes, so whoever has a token for those may speak for it.
        registered = await core.link().register(wire.Register(worker_id="w", version="1", kinds=["probe"]))
        owner, claim_id = PlayedWorker(core.link(), registered.session), uuid4()
        [attempt] = await owner.claim("plain", claim_id=claim_id)
        thief = PlayedWorker(core.link(kinds=["probe"]), owner.session)
        assert await thief.claim("probe", "plain", claim_id=claim_id) == []
        assert await thief.claim("probe", "plain", claim_id=claim_id, only=[id]) == []
        [same] = await owner.claim("plain", claim_id=claim_id)
        assert same.job.attempt_id == attempt.job.attempt_id


class TestAnotherKindsSession:
    """Its id is no secret either: it stands on the page of workers."""

    @pytest.fixture
    async def owner(self, core: Core) -> PlayedWorker:
        await submit(core, "plain", n=2)
        owner = await worker(core, "plain", "probe")
        await owner.claim("plain", limit=2)
        return owner

    @pytest.fixture(params=["this replica", "another replica"])
    def thief(self, core: Core, owner: PlayedWorker, request: pytest.FixtureRequest) -> PlayedWorker:
        if request.param == "another replica":
            core.session_kinds._known.clear()
        return PlayedWorker(core.link(kinds=["probe"]), owner.session)

    async def test_loses_no_job_by_beats_that_list_none(
        self, core: Core, connection: Connection, thief: PlayedWorker
    ) -> None:
        await connection.execute("UPDATE jobs SET claimed_at = claimed_at - interval '1 hour'")
        for _ in range(4):
            with pytest.raises(SessionUnknown):
                await thief.link.beat(thief.session, wire.Beat(holding=[]))
        assert await connection.fetchval("SELECT count(*) FROM jobs WHERE attempt_id IS NOT NULL AND unlisted = 0") == 2

    async def test_neither_lives_nor_ends_by_beats_of_others(
        self, connection: Connection, owner: PlayedWorker, thief: PlayedWorker
    ) -> None:
        await connection.execute("UPDATE sessions SET expires_at = expires_at - interval '1 hour'")
        before = await connection.fetchrow("SELECT expires_at, beat_at, dying FROM sessions")
        for dying in (False, True):
            with pytest.raises(SessionUnknown):
                await thief.link.beat(thief.session, wire.Beat(holding=[], dying=dying))
        assert await connection.fetchrow("SELECT expires_at, beat_at, dying FROM sessions") == before
        await owner.link.beat(owner.session, wire.Beat(holding=[]))
        assert await connection.fetchrow("SELECT expires_at, beat_at, dying FROM sessions") != before

    async def test_claims_nothing_for_others(self, core: Core, connection: Connection, thief: PlayedWorker) -> None:
        await submit(core, "probe")
        with pytest.raises(SessionUnknown):
            await thief.claim("probe")
        assert await connection.fetchval("SELECT count(*) FROM jobs WHERE kind = 'probe' AND attempt_id IS NULL") == 1

    async def test_of_which_the_row_was_lost_is_still_none_of_theirs(
        self, core: Core, connection: Connection, owner: PlayedWorker
    ) -> None:
        await connection.execute("DELETE FROM sessions")
        await connection.execute(
            "UPDATE service SET served_at = paddock_now(), resumed_at = paddock_now() - interval '1 hour'"
        )
        await core.keep_timeouts()
        core.session_kinds._known.clear()
        assert await connection.fetchval("SELECT kinds FROM sessions") == ["plain"]
        with pytest.raises(SessionUnknown):
            await core.link(kinds=["probe"]).beat(owner.session, wire.Beat(holding=[]))
        await owner.link.beat(owner.session, wire.Beat(holding=[]))

    async def test_is_unknown_over_http(self, clients: Clients, owner: PlayedWorker) -> None:
        await clients.token("prober", "worker", kinds=["probe"])
        beat = await (await clients("prober")).post(f"/internal/sessions/{owner.session}/beat", json={"holding": []})
        assert (beat.status_code, beat.json()["error"]["code"]) == (404, "session_unknown")

    async def test_inside_is_out_of_reach_of_every_token(self, core: Core) -> None:
        inside = core.link(internal=True)
        session = (await inside.register(wire.Register(worker_id="w", version="1", kinds=["bulk"]))).session
        for link in (core.link(), core.link(kinds=["bulk"])):
            with pytest.raises(SessionUnknown):
                await link.beat(session, wire.Beat(holding=[]))
        await inside.beat(session, wire.Beat(holding=[]))

    async def test_ones_own_is_looked_up_once(self, core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
        own = await worker(core, "probe")
        await own.link.beat(own.session, wire.Beat(holding=[]))
        fetched: list[object] = []
        monkeypatch.setattr(core.session_kinds, "_db", fetched)
        for _ in range(3):
            await own.link.beat(own.session, wire.Beat(holding=[]))
            assert await own.claim("probe") == []


async def test_whether_a_job_of_another_kind_has_ended_is_not_told(clients: Clients, core: Core) -> None:
    ids = [*await submit(core, "plain"), *await submit(core, "probe")]
    await core.cancel(ids, actor="ops")
    await clients.token("prober", "worker", kinds=["probe"])
    await clients.token("other", "worker")
    question = {"ids": [str(id) for id in ids]}
    assert (await (await clients("prober")).post("/internal/jobs/ended", json=question)).json()["ids"] == [str(ids[1])]
    assert len((await (await clients("other")).post("/internal/jobs/ended", json=question)).json()["ids"]) == 2


async def test_what_runs_inside_is_out_of_reach_of_every_token(core: Core) -> None:
    await core.submit([NewJob("bulk", BULK)], public=False)
    inside = await (await worker(core, internal=True)).claim_one("bulk")
    for link in (core.link(), core.link(kinds=["bulk"])):
        core.job_kinds._known.clear()
        assert await Attempt(link, inside.job).finish() == "unknown"
        assert await Attempt(link, inside.job).finish() == "unknown", "remembered, too"
    assert (await read(core, inside.id)).status == "claimed"
    assert await inside.finish() == "accepted"
