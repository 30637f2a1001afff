"""No more Jobs are made than a cluster finds places for, whoever makes them."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from bench.ingest_cluster import Simulation
from paddock.ingest.backpressure import JobSeen, Queue, Seen, count
from tests.playing import until


@pytest.mark.parametrize(
    ("scheduled", "most"), [(0, 1), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (12, 3), (100, 25), (200, 50)]
)
def test_a_quarter_of_what_runs_may_wait_and_one_always(scheduled: int, most: int) -> None:
    room = [unscheduled for unscheduled in range(300) if Seen(scheduled, unscheduled).room]
    assert room == [*range(most)]


def test_a_promised_job_is_without_a_place_until_the_cluster_shows_it() -> None:
    seen = [JobSeen("a", True), JobSeen("b", False)]
    assert count(seen) == (1, 1)
    assert count(seen, ["b", "c"]) == (1, 2)
    assert count([*seen, JobSeen("c", True)], ["b", "c"]) == (2, 1)


class Cluster:
    """What the watch has, changed by the test; a tick ends when it changes."""

    def __init__(self) -> None:
        self.jobs: dict[str, bool] = {}
        self.changes: asyncio.Queue[None] = asyncio.Queue()
        self.told: list[Seen] = []
        self.queue = Queue(self.look, self.changes.get, lambda: 0.0)

    def look(self) -> list[JobSeen]:
        return [JobSeen(step, scheduled) for step, scheduled in self.jobs.items()]

    def set(self, **jobs: bool) -> None:
        self.jobs = jobs
        self.changes.put_nowait(None)

    def wait(self, step: str, **more: timedelta) -> "asyncio.Task[bool]":
        return asyncio.create_task(self.queue.wait(step, self.told.append, **more))


async def test_steps_wait_in_their_order_and_one_place_lets_one_through() -> None:
    cluster = Cluster()
    assert await cluster.wait("a")
    second, third = cluster.wait("b"), cluster.wait("c")
    await until(lambda: len(cluster.told) == 2)
    assert (second.done(), third.done()) == (False, False), "the first is not scheduled"
    cluster.set(a=True)
    assert await second
    assert not third.done(), "the second took the place that was to be had"
    cluster.set(a=True, b=True)
    assert await third
    assert Seen(0, 1) in cluster.told


async def test_a_step_that_left_makes_room() -> None:
    cluster = Cluster()
    assert await cluster.wait("a")
    second = cluster.wait("b")
    await until(lambda: bool(cluster.told))
    cluster.queue.leave("a")
    cluster.set()
    assert await second


async def test_a_job_that_is_there_already_is_taken_over_without_waiting() -> None:
    cluster = Cluster()
    cluster.jobs = {"x": False, "mine": False}
    assert await cluster.wait("mine")


@pytest.mark.parametrize("before", [0, 1])
async def test_the_slot_is_given_back_when_the_patience_is_over(before: int) -> None:
    """Of the one that looks, and of those that wait behind it."""
    cluster = Cluster()
    cluster.jobs = {"x": False}
    others = [cluster.wait(f"other-{n}") for n in range(before)]
    await until(lambda: len(cluster.told) == before)
    assert not await cluster.wait("late", patience=timedelta(milliseconds=20))
    cluster.set()
    assert all(await asyncio.gather(*others))
    assert cluster.queue.seen() == Seen(0, before), "what gave up is not counted"


GOALS: dict[str, tuple[Simulation, Callable[[Simulation], bool]]] = {
    "a full cluster": (
        Simulation(batches=400),
        lambda seen: seen.creates == 400 and seen.most_unscheduled <= 7 and seen.throughput >= 0.95,
    ),
    "one that grows": (
        Simulation(batches=1_200, grows_to=60, slots=30),
        lambda seen: seen.creates <= 1_260 and (seen.full_at or 1e9) <= 20 * 60,
    ),
    "one that schedules nothing for an hour": (
        Simulation(batches=100, closed_until=3600.0),
        lambda seen: seen.creates_by_hour[0] <= 40 and (seen.recovered_at or 1e9) <= 180,
    ),
}


@pytest.mark.parametrize("what", GOALS)
async def test_on_a_simulated_cluster_the_goals_are_met(what: str) -> None:
    simulation, reached = GOALS[what]
    seen = await asyncio.to_thread(simulation.run)
    assert seen.given_up == 0
    assert reached(seen), seen


async def test_backoff_alone_would_not_do() -> None:
    """What the queue is for: the simulation shows the difference."""
    seen = await asyncio.to_thread(Simulation(batches=100, looking=False).run)
    assert seen.most_unscheduled >= 80
    assert seen.jobs_per_batch > 1.5
