"""Whoever cancels an export finds nothing of it afterwards: no draft, no process, no half of a delivery, no lock."""

import os
import signal

import pyarrow as pa
import pytest

from paddock.exports.plain import Export
from paddock.jobs import rescuing
from tests.conftest import DatabaseClock
from tests.exports.crash_scene import BACKWARDS, Scene, engine_children, kills, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def test_cancelled_while_it_streams(scene: Scene) -> None:
    scene.plan("hold uploaded 1")
    async with scene.working():
        export = await scene.export(to="daily")
        await scene.held()
        assert len(engine_children()) == 1
        assert scene.managed()

        await scene.cancel(export)
        assert (await scene.cleaned(export)).status == "completed"

        assert engine_children() == []
        assert scene.scratch() == set()
    await scene.sees_nothing(export)
    assert (await scene.look(export)).status == "cancelled"
    assert scene.managed() == set()
    assert scene.at_destination("daily") == set()
    assert await scene.locks() == []


async def test_cancelled_after_the_decision(scene: Scene, expected: pa.Table) -> None:
    async with scene.working():
        earlier = await scene.completed(await scene.export(to="daily", sql=BACKWARDS))
        before = await scene.rows(earlier)
        scene.plan("hold copied 1")
        export = await scene.export(to="daily", if_exists="replace")
        await scene.held()
        assert scene.at_destination("daily") > scene.named_at_destination("daily")

        await scene.cancel(export)
        assert (await scene.cleaned(export)).status == "completed"
        await scene.sees_nothing(export)
        assert scene.in_place(before)
        assert scene.at_destination("daily") == scene.named_at_destination("daily")
        assert scene.managed() == await scene.named(earlier)

        again = await scene.completed(await scene.export(to="daily", if_exists="replace"))
    assert scene.in_place(expected)
    assert scene.at_destination("daily") == scene.named_at_destination("daily")
    assert scene.managed() == await scene.named(earlier, again)


async def test_cancelled_after_the_destinations_manifest(scene: Scene, expected: pa.Table) -> None:
    """What readers may have seen already stays, whole: only the old files still go."""
    async with scene.working():
        earlier = await scene.completed(await scene.export(to="daily", sql=BACKWARDS))
        scene.plan("hold delivered 1")
        export = await scene.export(to="daily", if_exists="replace")
        await scene.held()
        await scene.cancel(export)
        assert (await scene.cleaned(export)).status == "completed"

    await scene.sees_nothing(export)
    assert scene.in_place(expected)
    assert scene.at_destination("daily") == scene.named_at_destination("daily")
    assert scene.managed() == await scene.named(earlier)
    assert await scene.locks() == []


async def test_a_cleanup_killed(scene: Scene) -> None:
    scene.plan(*kills(["copying", "undone", "discarded", "cleaned"]))
    async with scene.working():
        export = await scene.export(to="daily", if_exists="replace")
        await scene.crashed(export.job_id, 1)
        assert scene.at_destination("daily")
        await scene.cancel(export)
        cleanup = await scene.cleanup_of(export)
        for number in (1, 2, 3):
            await scene.crashed(cleanup, number)
            assert await scene.locks() == ["destination:lake:daily"]
            await scene.run_now(cleanup)
        assert (await scene.cleaned(export)).status == "completed"

    assert scene.planned() == 0
    assert scene.at_destination("daily") == set()
    assert scene.managed() == set()
    assert await scene.locks() == []


async def _cancelled_while_it_stands_still(scene: Scene, clock: DatabaseClock, supervisor: int) -> Export:
    export = await scene.export(to="daily")
    await scene.held()
    os.kill(supervisor, signal.SIGSTOP)
    await scene.cancel(export)

    async def session_over() -> bool:
        await clock.advance(seconds=9)
        return (await rescuing.rescue(scene.core)).cleanups > 0

    await until("the session is over", session_over)
    return export


async def test_a_worker_that_does_not_know_of_the_cancel_publishes_nothing(clock: DatabaseClock, scene: Scene) -> None:
    """It lost the control plane, not the store: its copies are gone when it comes to its manifest, and asks first."""
    scene.plan("hold deciding 2", "hold raised 1")
    async with scene.doomed_worker() as doomed:
        export = await _cancelled_while_it_stands_still(scene, clock, doomed.pid)
        async with scene.working():
            assert (await scene.cleaned(export)).status == "completed"
        assert scene.at_destination("daily") == set()

        scene.let_go()
        os.kill(doomed.pid, signal.SIGCONT)
        await scene.held()

    assert scene.at_destination("daily") == set()


@pytest.mark.parametrize("hears", ["when it asks the fence", "while it sends it"])
async def test_a_manifest_that_its_worker_sends_after_the_cleanup_is_taken_back(
    clock: DatabaseClock, scene: Scene, hears: str
) -> None:
    """The fence was asked and the worker stood still: a cleanup waits for what may be on its way, and still is early."""
    early = hears == "while it sends it"
    scene.plan("hold delivering 1", "hold delivered 1" if early else "hold raised 1")
    async with scene.doomed_worker() as doomed:
        export = await _cancelled_while_it_stands_still(scene, clock, doomed.pid)
        async with scene.working():
            cleanup = await scene.cleanup_of(export)

            async def waits() -> bool:
                job = await scene.job(cleanup)
                return job.status == "pending" and job.turn_count == 1

            await until("the cleanup waits", waits)
            assert scene.at_destination("daily"), "what a manifest on its way would name"
            assert await scene.locks() == ["destination:lake:daily"]
            await scene.run_now(cleanup)
            assert (await scene.cleaned(export)).status == "completed"
        assert scene.at_destination("daily") == set()

        scene.let_go()
        if early:
            await scene.held()
            assert scene.at_destination("daily") == {"_manifest.json"}
        os.kill(doomed.pid, signal.SIGCONT)

        async def taken_back() -> bool:
            return scene.at_destination("daily") == set()

        if early:
            await until("it is taken back", taken_back)
        else:
            await scene.held()

    assert scene.at_destination("daily") == set()
    assert await scene.locks() == []
