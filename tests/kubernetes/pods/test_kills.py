"""A job that is killed between any two of its steps goes on from what it saved: one pod, then none, and no row too many."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import httpx2
import pytest

from paddock.config import Config
from paddock.exports.snapshot_states import Snapshot
from paddock.instances import dropping, removing, talking
from paddock.instances.model import get
from paddock.jobs.core import Core
from paddock.jobs.outcomes import Done
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.runtime import KubernetesRuntime
from tests.cluster.admin import Admin, pods
from tests.instances.world import create, ready_snapshot, running
from tests.kubernetes.pods.pretending import Pretending
from tests.kubernetes.pods.test_starts import NAME, start_of
from tests.kubernetes.pods.turns import KeptLink, Turns, grow_turns, start_turns, stop_turns

SECONDS = 60
When = Literal["before", "after"]


def around(*steps: str) -> list[tuple[str, When]]:
    moments: tuple[When, When] = ("before", "after")
    return [(step, when) for step in steps for when in moments]


STARTS, STOPS = around("save", "create", "get", "/status", "/load"), around("get", "delete", "drop")


class Killed(BaseException):
    """Nobody catches it, as nobody hears a SIGKILL."""


@dataclass
class Killing:
    """Kills once, before or after the first step of this name."""

    step: str = ""
    when: When = "before"
    killed: int = 0

    async def around(self, step: str, doing: Callable[[], Awaitable[Any]]) -> Any:
        if step == self.step and self.when == "before":
            self._kill()
        done = await doing()
        if step == self.step and self.when == "after":
            self._kill()
        return done

    def _kill(self) -> None:
        self.step = ""
        self.killed += 1
        raise Killed


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> Killing:
    """Between it and the API server, the instance, what is saved, and the row."""
    found = Killing()
    api, ask, save, drop = Kubernetes._ask, talking.ask, KeptLink.save, dropping.drop

    async def call_api(self: Kubernetes, verb: str, *args: Any, **named: Any) -> Any:
        return await found.around(verb, lambda: api(self, verb, *args, **named))

    async def ask_instance(line: talking.Endpoint, method: str, path: str, *args: Any, **named: Any) -> Any:
        return await found.around(path, lambda: ask(line, method, path, *args, **named))

    async def save_state(self: KeptLink, *args: Any, **named: Any) -> None:
        await found.around("save", lambda: save(self, *args, **named))

    async def drop_row(*args: Any) -> Any:
        return await found.around("drop", lambda: drop(*args))

    monkeypatch.setattr(Kubernetes, "_ask", call_api)
    monkeypatch.setattr(talking, "ask", ask_instance)
    monkeypatch.setattr(KeptLink, "save", save_state)
    monkeypatch.setattr(dropping, "drop", drop_row)
    return found


async def until_done(turns: Turns) -> Done:
    """Turn after turn, whoever is killed."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                outcome = await turns.next()
            except Killed:
                continue
            if isinstance(outcome, Done):
                return outcome
            await asyncio.sleep(0.01)


@pytest.fixture
async def snapshot(core: Core, config: Config) -> Snapshot:
    return await ready_snapshot(core, config)


@pytest.mark.usefixtures("runtime", "pretending")
async def test_a_start_and_a_stop_that_are_killed_anywhere_leave_one_pod_and_then_none(
    core: Core,
    config: Config,
    ada: httpx2.AsyncClient,
    snapshot: Snapshot,
    admin: Admin,
    namespace: str,
    killing: Killing,
) -> None:
    for number, (step, when) in enumerate(STARTS):
        made = await create(ada, snapshot_id=str(snapshot.id))
        killing.step, killing.when = step, when
        done = await until_done(await start_turns(core, config, made["id"]))
        assert "address" in done.result, (step, when)
        [pod] = await admin.list(pods(namespace))
        assert pod["metadata"]["labels"]["paddock.io/instance"] == made["id"]

        assert await removing.stop(core, UUID(made["id"]), actor="ada", reason=None)
        killing.step, killing.when = STOPS[number % len(STOPS)]
        await until_done(stop_turns(core, config, made["id"]))
        assert await admin.list(pods(namespace)) == [], (step, when)
        assert await get(core.db, UUID(made["id"])) is None, (step, when)
    assert killing.killed == 2 * len(STARTS)


@pytest.mark.usefixtures("pretending", "at_work")
async def test_a_growth_that_is_killed_anywhere_asks_for_the_same_and_comes_to_its_end(
    core: Core,
    config: Config,
    ada: httpx2.AsyncClient,
    snapshot: Snapshot,
    admin: Admin,
    namespace: str,
    killing: Killing,
) -> None:
    made = await running(core, ada, snapshot, memory_gb=1)
    steps = around("save", "patch")
    for number, (step, when) in enumerate(steps):
        wanted = 2 + number
        killing.step, killing.when = step, when
        done = await until_done(await grow_turns(core, config, made["id"], wanted))
        assert done.result == {"outcome": "resized"}
        [pod] = await admin.list(pods(namespace))
        assert pod["status"]["containerStatuses"][0]["resources"]["limits"]["memory"] == f"{wanted}Gi"
    assert killing.killed == len(steps)


async def test_two_replicas_that_both_stop_and_one_that_wakes_late_take_nothing_else_away(
    runtime: KubernetesRuntime, client: Kubernetes, pretending: Pretending, admin: Admin, namespace: str
) -> None:
    """The one that slept acts on what it read before: by its UID nothing new is meant."""
    assert await runtime.start(start_of())
    old = await admin.until(pods(namespace, NAME), lambda pod: pod["status"]["phase"] == "Running")
    while not await runtime.delete(NAME):  # noqa: ASYNC110  the event is in the API server
        await asyncio.sleep(0.01)
    await admin.create(pods(namespace), {key: old[key] for key in ("apiVersion", "kind")} | _again(old))
    await runtime._end(old, 0)
    found = await admin.get(pods(namespace, NAME))
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]


def _again(pod: dict[str, Any]) -> dict[str, Any]:
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    metadata = {key: pod["metadata"][key] for key in ("name", "labels", "annotations")}
    return {"metadata": metadata, "spec": spec}
