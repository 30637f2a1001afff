"""How a webhook did of late: counted from its newest deliveries, along an index."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from paddock.api import facts, webhook_health
from paddock.api.tokens import Caller
from paddock.jobs import events, wire
from paddock.jobs.core import Core, open_core
from paddock.jobs.events import OwnedEvent
from paddock.jobs.kinds import Kinds
from paddock.jobs.model import NewEvent
from paddock.jobs.webhooks.delivering import WEBHOOK
from tests.conftest import DatabaseClock

ANN = Caller(uuid4(), "ann", "analyst", "ann")
BOB = Caller(uuid4(), "bob", "analyst", "bob")
OPS = Caller(uuid4(), "olga", "ops", "olga")


@pytest.fixture
async def telling(dsn: str) -> AsyncIterator[Core]:
    async with open_core(dsn, Kinds([WEBHOOK])) as core:
        yield core


async def subscribe(core: Core) -> UUID:
    made = await facts.create_webhook(core.db, ANN, url="https://example.com/", types=["*"], all_owners=False)
    id: UUID = made["id"]
    return id


async def tell(
    core: Core, clock: DatabaseClock, outcome: str | None = None, message: str = "The receiver answered 500."
) -> UUID:
    """One event a second later and its delivery, which ends as told; None: it waits."""
    await clock.advance(seconds=1)
    async with core.db.transaction() as tx:
        await events.emit(core, tx, [OwnedEvent(NewEvent("table.compacted", "tables/7"), "ann")])
    if outcome is not None:
        await end_next(core, outcome, message)
    [newest] = await facts.events_page(core.db, None, before=None, subject=None, type=None, limit=1)
    id: UUID = newest["id"]
    return id


async def end_next(core: Core, outcome: str, message: str = "The receiver answered 500.") -> None:
    link = core.link(internal=True)
    registered = await link.register(wire.Register(worker_id="inside", version="1", kinds=[WEBHOOK.name]))
    claimed = await link.claim(wire.Claim(session=registered.session, claim_id=uuid4(), kinds=[WEBHOOK.name], limit=1))
    [job] = claimed.jobs
    failed = outcome in ("transient", "permanent")
    item = wire.FinishItem(
        id=job.id,
        attempt_id=job.attempt_id,
        outcome=outcome,  # type: ignore[arg-type]
        result=None if failed else {"status": 204},
        error=wire.Error(code="webhook_unavailable", message=message, hint="Look there.") if failed else None,
    )
    await link.finish(wire.Finish(items=[item]))


async def test_deliveries_are_counted_and_the_last_failure_told_with_since_when(
    telling: Core, clock: DatabaseClock
) -> None:
    webhook, silent = await subscribe(telling), await subscribe(telling)
    await facts.delete_webhook(telling.db, ANN, silent)  # told of nothing
    await tell(telling, clock, "permanent", "long ago")
    await clock.advance(minutes=25 * 60)
    for outcome in ("permanent", "done", "done"):
        await tell(telling, clock, outcome)
    await tell(telling, clock, "permanent")
    first_failure = clock.at
    await tell(telling, clock, "transient", "The last one.")
    await tell(telling, clock)

    found = await webhook_health.health(telling.db, [webhook, silent])

    assert found[silent] == webhook_health.Health()
    how = found[webhook]
    assert (how.delivered, how.failed, how.retrying, how.under_way, how.complete) == (2, 2, 1, 1, True)
    assert (how.last_error, how.last_error_code, how.failing_since) == (
        "The last one.",
        "webhook_unavailable",
        first_failure,
    )


async def test_a_success_ends_the_failing(telling: Core, clock: DatabaseClock) -> None:
    webhook = await subscribe(telling)
    await tell(telling, clock, "permanent")
    await tell(telling, clock, "done")
    how = (await webhook_health.health(telling.db, [webhook]))[webhook]
    assert (how.failing_since, how.last_error) == (None, "The receiver answered 500.")


async def test_only_the_newest_are_counted_and_that_is_said(
    telling: Core, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_health, "MOST_DELIVERIES", 2)
    webhook = await subscribe(telling)
    for outcome in ("permanent", "done", "done"):
        await tell(telling, clock, outcome)
    how = (await webhook_health.health(telling.db, [webhook]))[webhook]
    assert (how.counted, how.delivered, how.complete) == (2, 2, False)


async def test_what_one_webhook_was_told_comes_in_pages(telling: Core, clock: DatabaseClock) -> None:
    webhook = await subscribe(telling)
    for _ in range(3):
        await tell(telling, clock, "done")
    await tell(telling, clock, "transient")

    first = await facts.deliveries_to(telling.db, webhook, None, 2)
    rest = await facts.deliveries_to(telling.db, webhook, first[-1]["id"], 10)

    assert (first[0]["status"], first[0]["attempts"], first[0]["hint"]) == ("pending", 1, "Look there.")
    assert first[0]["next_try_at"] is not None
    assert (first[1]["status"], first[1]["answered"], first[1]["type"]) == ("completed", 204, "table.compacted")
    assert len({row["id"] for row in [*first, *rest]}) == 4


async def test_what_was_told_of_an_event_is_counted_for_those_who_may_see_it(
    telling: Core, clock: DatabaseClock
) -> None:
    await subscribe(telling)
    delivered, waiting = await tell(telling, clock, "done"), await tell(telling, clock)
    assert await facts.delivery_counts(telling.db, ANN, [delivered, waiting]) == {
        delivered: {"completed": 1},
        waiting: {"pending": 1},
    }
    assert await facts.delivery_counts(telling.db, BOB, [delivered, waiting]) == {}


async def test_newer_deliveries_of_others_do_not_hide_an_owners_own(
    telling: Core, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "MOST_TOLD", 2)
    await subscribe(telling)
    await facts.create_webhook(telling.db, OPS, url="https://example.com/", types=["*"], all_owners=True)
    event = await tell(telling, clock)
    everybodys = [row["webhook_id"] for row in await facts.deliveries(telling.db, OPS, event) if row["owner"] == "olga"]
    for _ in range(2):
        await clock.advance(seconds=1)
        await facts.redeliver(telling, OPS, event, everybodys, None)
    assert await facts.delivery_counts(telling.db, ANN, [event]) == {event: {"pending": 1}}


@pytest.mark.parametrize(
    ("name", "arguments", "index"),
    [
        ("outcomes_of_webhooks", (webhook_health.WITHIN, 200, [uuid4()]), "deliveries_webhook"),
        ("deliveries_of_webhook", (uuid4(), uuid4(), 25), "deliveries_webhook"),
        ("deliveries_of_events", ([uuid4()], None, 20), "deliveries_pkey"),
    ],
)
async def test_no_table_is_read_whole(telling: Core, name: str, arguments: tuple[object, ...], index: str) -> None:
    """With so many rows that the plan does not hang on when the server last counted an empty table."""
    statement = facts.SQL[name]
    async with telling.db.pool(statement.pool).acquire() as connection:
        await connection.execute(
            "INSERT INTO deliveries (event_id, webhook_id, job_id)"
            " SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid() FROM generate_series(1, 5000)"
        )
        await connection.execute("ANALYZE deliveries")
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statement.sql}", *arguments))
    assert index in plan
    assert "Seq Scan" not in plan, plan
