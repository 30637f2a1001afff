"""Random worlds: instances in any state, pods that are there, gone, foreign, young or of another generation, jobs at work or
none, and a replica that dies anywhere. After two passes every instance is explained, nothing foreign, young or in
somebody's hands was touched, each orphan was counted once, and a third pass finds nothing."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.background import reconciliation
from paddock.config import Config
from paddock.jobs.core import Core
from paddock.jobs.model import NewJob
from paddock.pass_metrics import pass_metrics
from tests.background.ticking import tick_of
from tests.background.world import NOW, add_instance, open_runtime, row_of
from tests.examples import examples

STEP = timedelta(minutes=6)
OLD = timedelta(minutes=2)
LEFT_ALONE = {"skipped_busy", "skipped_not_ready"}


@dataclass(frozen=True)
class InstanceThere:
    status: str
    pod: str | None
    why: str | None
    busy: bool
    # Of the generation before: nothing names it.
    earlier_pod: bool


@dataclass(frozen=True)
class Loose:
    """A pod that no instance names. `foreign`: of another installation, which our lists do not show."""

    age: timedelta
    foreign: bool
    busy: bool


INSTANCES = st.builds(
    InstanceThere,
    status=st.sampled_from(["starting", "running", "stopping", "failed"]),
    pod=st.sampled_from([None, "starting", "up", "ended", "unknown"]),
    why=st.sampled_from([None, "exited", "out_of_memory", "keeper_gone"]),
    busy=st.booleans(),
    earlier_pod=st.booleans(),
)
LOOSE = st.builds(
    Loose,
    age=st.integers(0, 240).map(lambda seconds: timedelta(seconds=seconds)),
    foreign=st.booleans(),
    busy=st.booleans(),
)


class Killed(BaseException):
    """The process is gone here."""


class World:
    def __init__(self, core: Core, config: Config) -> None:
        self.core, self.config = core, config
        self.runtime = open_runtime(config)
        self.now = NOW
        self.instances: list[UUID] = []
        self.loose: dict[str, Loose] = {}
        self.busy: set[str] = set()
        self.found: Counter[str] = Counter()
        self.saved: dict[str, Any] = {}
        self.notes: dict[str, Any] = {}
        self._steps_left: int | None = None
        self.runtime.before_get = self._step
        self.runtime.before_delete = self._deleting

    async def add(self, one: InstanceThere) -> None:
        made = await add_instance(self.core, one.status)
        self.instances.append(made.id)
        if one.pod is not None:
            why: Any = one.why if one.pod == "ended" else None
            self.runtime.add(made.pod_name, made.id, made.generation, state=one.pod, why=why)
        if one.earlier_pod:
            name = f"ladybug-wrapper-{made.id}-0"
            self.runtime.add(name, made.id)
            self.busy |= {name} if one.busy else set()
        if one.busy:
            await self._hold(made.id)

    async def add_loose(self, number: int, one: Loose) -> None:
        id = uuid4()
        name = f"loose-{number:03}"
        self.loose[name] = one
        self.runtime.add(name, id, made_at=NOW - one.age)
        if one.foreign:
            self.runtime.foreign.add(name)
        if one.busy:
            self.busy.add(name)
            await self._hold(id)

    async def _hold(self, id: UUID) -> None:
        await self.core.submit([NewJob("instance_stop", {"instance_id": str(id)})], public=False)

    def _step(self, _name: str) -> None:
        if self._steps_left is not None:
            if not self._steps_left:
                raise Killed
            self._steps_left -= 1

    def _deleting(self, name: str) -> None:
        self._step(name)
        pod = self.runtime.pods.get(name)
        assert name not in self.runtime.foreign, "foreign"
        assert pod is None or self.now - pod.made_at >= OLD, "young"
        assert name not in self.busy, "in a live job's hands"

    async def reconcile(self, *, dies_after: int | None = None) -> Counter[str]:
        """A pass, and the rest of it by another replica where the first dies."""
        try:
            return await self._pass(dies_after)
        except Killed:
            return await self._pass(None)

    async def _pass(self, steps: int | None) -> Counter[str]:
        async def save(state: dict[str, Any]) -> None:
            self.saved = state

        self._steps_left = steps
        tick = await tick_of(
            self.core, config=self.config, notes=dict(self.notes), saved=self.saved, save=save, force=True
        )
        await reconciliation.run(tick, now=self.now)
        self.saved, self.notes = {}, tick.notes
        self.found += tick.found
        self.now += STEP
        return tick.found

    async def job_of(self, id: UUID) -> str | None:
        async with self.core.db.transaction() as tx:
            kind: str | None = await tx.fetchval("SELECT kind FROM jobs WHERE lock_key = $1", f"instance:{id}")
        return kind

    async def explained(self, id: UUID) -> bool:
        row = await row_of(self.core, id)
        assert row is not None
        pod = self.runtime.pods.get(row["pod_name"])
        at_work = await self.job_of(id) is not None
        return row["status"] == "failed" or at_work or (pod is not None and pod.state in ("starting", "up"))


@pytest.mark.examples
@settings(max_examples=examples(80), suppress_health_check=list(HealthCheck))
@given(
    instances=st.lists(INSTANCES, max_size=6),
    loose=st.lists(LOOSE, max_size=5),
    dies_after=st.none() | st.integers(0, 12),
)
async def test_after_two_passes_everything_is_explained_and_a_third_finds_nothing(
    core: Core, config: Config, instances: list[InstanceThere], loose: list[Loose], dies_after: int | None
) -> None:
    async with core.db.transaction() as tx:
        await tx.execute("DELETE FROM instances")
        await tx.execute("DELETE FROM jobs")
    world = World(core, config)
    for one in instances:
        await world.add(one)
    for number, pod in enumerate(loose):
        await world.add_loose(number, pod)
    before = pass_metrics().orphans_cleaned._value.get()

    await world.reconcile(dies_after=dies_after)
    await world.reconcile()

    for id in world.instances:
        assert await world.explained(id)
    left = {name for name, pod in world.loose.items() if pod.foreign or pod.busy}
    assert left <= world.runtime.pods.keys()
    assert {name for name in world.runtime.pods if name.startswith("loose-")} == left
    orphans = len(world.loose) - len(left)
    for id, one in zip(world.instances, instances, strict=True):
        # A start or a stop that the passes began is as good a reason to leave it as one that was there.
        gone = f"ladybug-wrapper-{id}-0" not in world.runtime.pods
        assert gone or not one.earlier_pod or await world.job_of(id) is not None
        orphans += gone and one.earlier_pod
    assert world.found["orphaned_pods_cleaned"] == orphans, "each counted once"
    assert pass_metrics().orphans_cleaned._value.get() == before + orphans
    third = await world.reconcile()
    assert not set(third) - LEFT_ALONE, third
