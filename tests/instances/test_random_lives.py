"""Random lives on a runtime that loses answers: when everything has settled, rows and runtime agree."""

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from paddock.config import Config
from paddock.exports.snapshot_states import Snapshot
from paddock.exports.snapshots import NewSnapshot
from paddock.instances import creating, finding, following, removing, running_on, talking
from paddock.instances.creating import NewInstance
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.errors import Refused, TransientResourceError
from paddock.known_kinds import all_kinds
from paddock.metrics import Metrics
from tests.conftest import Server as Postgres
from tests.examples import examples
from tests.instances.fake_runtime import READY, FakeRuntime
from tests.instances.world import export, make_mapping, ready_snapshot, until, until_idle, working

pytestmark = [pytest.mark.slow, pytest.mark.examples]
FAILING: list[dict[str, Any]] = [{"phase": "nodes"}, {"phase": "failed", "error": {"cause": "loader_died"}}]

place = st.integers(min_value=0, max_value=4)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["make", "make_from_mapping", "export", "fail_export", "look", "settle"]), st.just(0)
        ),
        st.tuples(st.sampled_from(["delete", "reopen", "kill", "vanish", "keeper", "follow"]), place),
        st.tuples(st.sampled_from(["starts_fail", "starts_succeed"]), st.just(0)),
    ),
    min_size=3,
    max_size=14,
)


class World:
    """One core with a worker, for all examples; each has an owner of its own."""

    def __init__(self, core: Core, config: Config, runtime: FakeRuntime) -> None:
        self.core, self.config, self.runtime = core, config, runtime

    async def live(self, script: list[tuple[str, int]], seed: int) -> None:
        owner = f"owner-{uuid4().hex[:8]}"
        snapshot = await ready_snapshot(self.core, self.config, owner=owner)
        faults = Random(seed)
        made: list[UUID] = []

        async def before(what: str, name: str) -> None:
            if faults.random() < 0.15:
                raise TransientResourceError("Nobody answered.", delay=timedelta(0), budget="cluster")

        self.runtime.before = before
        self.runtime.loses = lambda _what, _name: faults.random() < 0.15
        self.runtime.behaviour.phases = [READY]
        try:
            for what, n in script:
                with contextlib.suppress(Refused, TransientResourceError):
                    await self._step(what, made[n % len(made)] if made else None, owner, snapshot, made)
        finally:
            self.runtime.before, self.runtime.loses = None, lambda _what, _name: False
            self.runtime.behaviour.phases = [READY]
        await self._settled(made)
        await self._checked(owner)
        for id in made:
            await removing.stop(self.core, id, actor="test", reason=None)
        await until_idle(self.core)
        await self._nothing_left(owner, made)

    async def _step(self, what: str, id: UUID | None, owner: str, snapshot: Snapshot, made: list[UUID]) -> None:
        if what in ("make", "make_from_mapping"):
            made.append(await self._make(owner, snapshot, of_mapping=what == "make_from_mapping"))
        elif what in ("export", "fail_export"):
            await export(self.core, self.config, fail=what == "fail_export")
        elif what in ("starts_fail", "starts_succeed"):
            self.runtime.behaviour.phases = FAILING if what == "starts_fail" else [READY]
        elif what == "settle":
            await self._settled(made)
        elif id is not None:
            await self._step_of(what, id)

    async def _make(self, owner: str, snapshot: Snapshot, *, of_mapping: bool) -> UUID:
        source: NewSnapshot | UUID = snapshot.id
        if of_mapping:
            mapping = await make_mapping(self.core, owner=owner, name=uuid4().hex)
            source = NewSnapshot(owner=owner, mapping_id=mapping.id, engine="local", role=None)
        new = NewInstance(
            owner=owner,
            name="random",
            description="",
            wrapper_type="ladybug",
            mapping_id=snapshot.mapping_id,
            mapping_version=1,
            snapshot=source,
            cpu_cores=1,
            memory_gb=1,
            ttl=timedelta(hours=1),
            inactivity_timeout=timedelta(hours=1),
        )
        return await creating.create(self.core, new, actor=owner, room=None)

    async def _step_of(self, what: str, id: UUID) -> None:
        if what == "delete":
            await removing.stop(self.core, id, actor="test", reason=None)
        elif what == "reopen":
            await creating.reopen(self.core, id, actor="test", room=None)
        elif what == "follow":
            await following.follow(self.core, self.config, id)
        elif what == "look":
            await finding.look_after(self.core, self.config, id)
        else:
            for name in [name for name, one in self.runtime.running.items() if one.start.instance == id]:
                if what == "vanish":
                    await self.runtime.vanish(name)
                else:
                    await self.runtime.kill(name, "keeper_gone" if what == "keeper" else "exited")

    async def _settled(self, made: list[UUID]) -> None:
        """Nobody is at work, and whoever is dead has been found."""

        async def quiet() -> bool:
            await until_idle(self.core)
            found = [await finding.look_after(self.core, self.config, id) for id in made]
            return not {"restarted", "busy"} & set(found)

        with contextlib.suppress(TransientResourceError):
            await until("everything has settled", quiet)

    async def _checked(self, owner: str) -> None:
        rows = await self.core.db.pool("durable").fetch("SELECT * FROM instances WHERE owner = $1", owner)
        for row in rows:
            assert row["status"] in ("waiting_for_snapshot", "running", "failed"), dict(row)
            theirs = [name for name, one in self.runtime.running.items() if one.start.instance == row["id"]]
            up = [name for name in theirs if self.runtime.states[name][0] == "up"]
            if row["status"] == "running":
                assert up == [row["pod_name"]]
                assert self.runtime.running[row["pod_name"]].start.generation == row["generation"]
            else:
                assert up == []
            if row["status"] == "failed":
                assert row["error"] is not None
        used = await self.core.db.pool("durable").fetch("SELECT subject FROM snapshot_uses WHERE owner = $1", owner)
        assert sorted(use["subject"] for use in used) == sorted(f"instance:{row['id']}" for row in rows)

    async def _nothing_left(self, owner: str, made: list[UUID]) -> None:
        pool = self.core.db.pool("durable")
        assert await pool.fetchval("SELECT count(*) FROM instances WHERE owner = $1", owner) == 0
        assert await pool.fetchval("SELECT count(*) FROM snapshot_uses WHERE owner = $1", owner) == 0
        assert not [name for name, one in self.runtime.running.items() if one.start.instance in made]
        for id in made:
            told = await pool.fetch("SELECT type FROM events WHERE subject = $1 ORDER BY id", f"instance:{id}")
            types = [row["type"] for row in told]
            assert (types[0], types[-1]) == ("instance.created", "instance.deleted"), types
            assert types.count("instance.deleted") == 1
        assert await pool.fetchval("SELECT count(*) FROM jobs WHERE lock_key LIKE 'instance:%'") == 0


@pytest.fixture(scope="module")
def lives(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, World]]:
    folder: Path = tmp_path_factory.mktemp("random")
    config = Config(data=folder, object_store=str(folder / "objects"), engines={"local": {"type": "duckdb"}})
    runtime = FakeRuntime()
    running_on.OPENED["local", config.data] = runtime
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def begin() -> World:
            dsn = await postgres.create_database("random_lives", "paddock_template")
            opened = open_core(dsn, all_kinds(config), CoreSettings(), metrics=Metrics(CollectorRegistry()))
            core = await stack.enter_async_context(opened)
            await stack.enter_async_context(working(core, config))
            return World(core, config, runtime)

        async def end() -> None:
            await stack.aclose()
            await runtime.close()
            await talking.close_session()
            await postgres.drop_database("random_lives")

        try:
            yield runner, runner.run(begin())
        finally:
            runner.run(end())
            del running_on.OPENED["local", config.data]


@settings(max_examples=examples(32), suppress_health_check=list(HealthCheck), print_blob=True)
@given(script=steps, seed=st.integers(min_value=0, max_value=2**32))
def test_rows_and_runtime_agree_whatever_happened(
    lives: tuple[asyncio.Runner, World], script: list[tuple[str, int]], seed: int
) -> None:
    runner, world = lives
    runner.run(world.live(script, seed))
