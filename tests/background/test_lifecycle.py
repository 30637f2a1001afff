"""`lifecycle`: what is over ends, once, and what is in use waits."""

from datetime import timedelta
from typing import Any

import pytest

from paddock.background import lifecycle
from paddock.config import Config
from paddock.exports import mappings, removing, snapshot_states, snapshots
from paddock.exports.snapshot_states import Snapshot
from paddock.jobs.core import Core
from paddock.pass_metrics import pass_metrics
from paddock.storage.store import Store
from tests.background.ticking import passed
from tests.conftest import DatabaseClock
from tests.dumps.api.inside import run_inside
from tests.snapshots.making import claim, complete, make_mapping, make_snapshot, now

HOUR = timedelta(hours=1)


async def ended_snapshot(core: Core, **fields: Any) -> Snapshot:
    made = await make_snapshot(core, **fields)
    await snapshots.cancel(core, made, actor="ada")
    return await now(core, made.id)


async def test_each_kind_of_thing_is_counted_with_how_late_its_end_was(core: Core, clock: DatabaseClock) -> None:
    metrics = pass_metrics()
    before = metrics.ttl_ended["snapshot"]._value.get()
    lag = metrics.enforcement_lag("snapshot")._sum.get()
    await ended_snapshot(core, ttl=HOUR)
    await clock.advance(minutes=70)
    assert (await passed(lifecycle.run, core))["snapshots_ended"] == 1
    assert metrics.ttl_ended["snapshot"]._value.get() == before + 1
    assert metrics.enforcement_lag("snapshot")._sum.get() == lag + 600
    assert (await passed(lifecycle.run, core))["snapshots_ended"] == 0, "once"


async def test_a_mapping_goes_in_the_pass_that_marks_its_last_snapshot(core: Core, clock: DatabaseClock) -> None:
    mapping = await make_mapping(core, ttl=HOUR)
    await ended_snapshot(core, mapping=mapping, ttl=HOUR)
    await clock.advance(minutes=60)
    found = await passed(lifecycle.run, core)
    assert (found["snapshots_ended"], found["mappings_ended"]) == (1, 1)
    assert await mappings.get(core.db, mapping.id) is None


async def test_what_is_being_made_is_a_skip_and_comes_again(core: Core, clock: DatabaseClock) -> None:
    skipped = pass_metrics().lifecycle_skipped("in_use")._value.get()
    made = await make_snapshot(core, ttl=HOUR)
    await clock.advance(minutes=60)
    assert (await passed(lifecycle.run, core))["skipped_in_use"] == 1
    assert pass_metrics().lifecycle_skipped("in_use")._value.get() == skipped + 1
    for attempt in (await claim(core)).values():
        await complete(attempt)
    assert (await passed(lifecycle.run, core))["snapshots_ended"] == 1
    assert (await now(core, made.id)).status == "deleting"


async def test_one_that_was_given_more_time_since_the_list_was_read_stays(core: Core, clock: DatabaseClock) -> None:
    made = await ended_snapshot(core, ttl=HOUR)
    await clock.advance(minutes=60)
    async with core.db.transaction() as tx:
        await tx.execute("UPDATE snapshots SET expires_at = paddock_now() + interval '1 day' WHERE id = $1", made.id)
    assert await snapshots.expire(core, made.id) is False


async def test_two_passes_at_once_end_each_thing_once(core: Core, clock: DatabaseClock) -> None:
    made = await ended_snapshot(core, ttl=HOUR)
    await clock.advance(minutes=60)
    assert [await snapshots.expire(core, made.id), await snapshots.expire(core, made.id)] == [True, False]


async def test_an_item_that_fails_is_counted_and_stops_nothing(
    core: Core, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await ended_snapshot(core, ttl=HOUR)
    second = await ended_snapshot(core, mapping=await make_mapping(core, name="other"), ttl=2 * HOUR)
    await clock.advance(minutes=120)
    expire = snapshots.expire

    async def breaks(core: Core, id: object) -> bool:
        if id == first.id:
            raise RuntimeError("no")
        return await expire(core, second.id)

    monkeypatch.setattr(snapshots, "expire", breaks)
    failures = pass_metrics().lifecycle_failures("snapshot")._value.get()
    found = await passed(lifecycle.run, core)
    assert (found["snapshots_ended"], found["failures"]) == (1, 1)
    assert pass_metrics().lifecycle_failures("snapshot")._value.get() == failures + 1


async def test_a_snapshot_whose_files_cannot_go_stays_marked_and_goes_when_they_can(
    core: Core, config: Config, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await ended_snapshot(core, ttl=HOUR)
    await clock.advance(minutes=60)
    await passed(lifecycle.run, core)
    failures = pass_metrics().snapshot_cleanup_failures._value.get()

    async def refuses(*_: object) -> object:
        raise OSError("the store refuses the delete")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "delete_below", refuses)
        [removal] = await run_inside(core, config, removing.REMOVE)
    assert removal.status == "pending"
    assert removal.failure_count == 1
    assert pass_metrics().snapshot_cleanup_failures._value.get() == failures + 1
    assert (await passed(lifecycle.run, core))["removals_begun_again"] == 0, "it is still being tried"

    await core.cancel([removal.id], actor="ops")
    assert (await now(core, made.id)).status == "deleting"
    assert (await passed(lifecycle.run, core))["removals_begun_again"] == 1
    [removal] = await run_inside(core, config, removing.REMOVE)
    assert removal.status == "completed", removal.error_message
    assert await snapshot_states.get(core.db, made.id) is None
