"""A process may die between any two steps of a dump: what is saved, sent, put, rolled, completed, marked or removed. The
dump then ends with the same file, or is cleaned up; nothing else is left in the store, no upload is open, no copy stays."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from paddock.dumps import reporting, running, writing
from paddock.dumps.copies import Copies
from paddock.dumps.model import DumpPayload, counts_key
from paddock.dumps.resources import DumpResources
from paddock.storage import parts as parts_module
from paddock.storage.parts import Parts
from paddock.storage.parts_plain import PlainParts
from tests.dumps.frozen import texts
from tests.dumps.turning import CopiedDatabase, Death, Job, Killed, configured, one_turn, to_its_end
from tests.storage.servers import Server

CONTENT = {"orders": texts(300, 900), "lines": texts(150, 300), "empty": []}
# Where a part has at least 5 MiB: three of them, and a bit.
LARGE = {"orders": [text * 45 for text in texts(400, 900)], "lines": texts(60), "empty": []}
STEPS = {
    "store": ("put", "delete", "delete_below"),
    "parts": ("begin", "send", "complete", "abort"),
}


class Crashing:
    """A dump whose process dies after step `at`, once; and the store it leaves things in."""

    def __init__(self, place: Path, store: str, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        (place / "shop.db").write_text(json.dumps(CONTENT if plain or "://" not in store else LARGE))
        self.death = Death()
        self.resources = DumpResources(configured(place, object_store=store))
        if plain:
            self.resources.parts = Parts(PlainParts(self.resources.store.backend))
        self.parts, self._copies = self.resources.parts, place / ".shop.db.dumps"
        # Of what nobody disturbs, for looking at it.
        self._store, self._abort = self.resources.store, self.parts.abort
        self._listed = self._store.list
        for of, names in STEPS.items():
            for name in names:
                whose = getattr(self.resources, of)
                monkeypatch.setattr(whose, name, self._async(getattr(whose, name)))
        for name in ("reserve", "mark", "drop", "remove"):
            monkeypatch.setattr(Copies, name, self._sync(getattr(Copies, name)))
        monkeypatch.setattr(running, "file_source", lambda settings: CopiedDatabase(place / "shop.db"))
        monkeypatch.setattr(writing, "ROLL", 2)
        monkeypatch.setattr(writing, "LARGEST_CURSOR", 10)
        # Their counts go into an object of their own.
        monkeypatch.setattr(running, "MOST_TABLES", 10)
        for module in (running, reporting):
            monkeypatch.setattr(module, "REPORT_EVERY", 0.0)
        self._number = 0

    def _async(self, given: Callable[..., Any]) -> Callable[..., Any]:
        async def done(*args: Any) -> Any:
            self.death.check()
            answer = await given(*args)
            self.death.step()
            return answer

        return done

    def _sync(self, given: Callable[..., Any]) -> Callable[..., Any]:
        def done(*args: Any) -> Any:
            self.death.check()
            answer = given(*args)
            self.death.step()
            return answer

        return done

    def job(self) -> Job:
        self._number += 1
        job = Job(DumpPayload(dump_id=f"export_20261116-093000_{self._number:06}", database="shop"))
        job.death = self.death
        return job

    async def killed(self, at: int) -> Job | None:
        """After so many steps; None: it ended before."""
        job = self.job()
        self.death.live(at)
        try:
            await to_its_end(job, self.resources)
            return None
        except Killed:
            return job
        finally:
            self.death.live()

    async def content(self, job: Job) -> bytes:
        finished = await to_its_end(job, self.resources)
        read = parts_module.read(self._store, finished.key, finished.objects, finished.part_size, finished.size)
        data = b"".join([piece async for piece in read])
        keys = await self.keys(job)
        keys.remove(counts_key(finished.key))
        assert all(f"{key}/".startswith(f"{finished.key}/") for key in keys), keys
        assert len(keys) == max(1, finished.objects)
        # The last line names the dump.
        return data.rpartition(b"-- paddock: ")[0]

    async def keys(self, job: Job) -> list[str]:
        return [entry.key async for entry in self._store.list(job.payload.prefix, unfinished=True)]

    async def leaves_nothing_open(self, job: Job) -> bool:
        return await self._abort(job.payload.prefix) == 0 and not list(self._copies.glob("*/*"))


@pytest.fixture(params=["folder", "plain parts", pytest.param("s3", marks=pytest.mark.slow)])
def crashing(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crashing:
    store = str(tmp_path / "store")
    if request.param != "folder":
        server: Server = request.getfixturevalue("s3_server")
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        store = f"{server.url}/{tmp_path.name}"
    return Crashing(tmp_path, store, request.param == "plain parts", monkeypatch)


async def test_killed_after_any_step_it_makes_the_same_file_and_leaves_nothing(crashing: Crashing) -> None:
    undisturbed = crashing.job()
    whole = await crashing.content(undisturbed)
    assert undisturbed.reports[-1]["percent"] > 90
    steps = 0
    while job := await crashing.killed(steps + 1):
        steps += 1
        assert await crashing.content(job) == whole, steps
        assert await crashing.leaves_nothing_open(job), steps
        percents = [report["percent"] for report in job.reports]
        assert percents == sorted(percents), steps
    assert steps > 20


async def test_killed_after_any_step_and_given_up_it_leaves_nothing_at_all(crashing: Crashing) -> None:
    steps = 0
    while job := await crashing.killed(steps + 1):
        steps += 1
        # Who cleans up may die as well.
        crashing.death.live(1 + steps % 5)
        with suppress(Killed):
            await running.clean(job.turn(cleanup=True), crashing.resources)
        crashing.death.live()
        await running.clean(job.turn(cleanup=True), crashing.resources)
        assert await crashing.keys(job) == [], steps
        assert await crashing.leaves_nothing_open(job), steps


async def test_killed_again_and_again_it_ends(crashing: Crashing) -> None:
    whole, job = await crashing.content(crashing.job()), crashing.job()
    kills = 0
    while True:
        crashing.death.live(at=8)
        try:
            await one_turn(job, crashing.resources)
            break
        except Killed:
            kills += 1
    crashing.death.live()
    assert kills > 2
    assert await crashing.content(job) == whole
    assert await crashing.leaves_nothing_open(job)
