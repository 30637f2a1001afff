"""What a worker's machine gives to steps: its cores, and its scratch space."""

import asyncio
import os
from pathlib import Path
from uuid import uuid4

import pytest

from paddock.ingest import fetching, hooking, publishing, resources
from paddock.ingest.model import BatchPayload, Fetched, FetchPayload, Hooked
from paddock.ingest.resources import IngestResources
from paddock.ingest.trying import turn_of
from paddock.jobs.errors import InfrastructureError
from paddock.jobs.outcomes import Done
from tests.ingest.conftest import SEVENS, Bench


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("max 100000\n", 64),
        ("250000 100000\n", 3),
        ("10000 100000\n", 1),
        ("nonsense", 64),
        (None, 64),
        ("6500000 100000\n", 64),
    ],
)
def test_a_container_has_the_cores_that_it_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, wanted: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    if content is not None:
        (tmp_path / "cpu.max").write_text(content)
    assert resources.cores(tmp_path / "cpu.max") == wanted


async def fetched(bench: Bench, given: IngestResources) -> BatchPayload:
    """A batch of four numbers as the hooks get it."""
    run_id = str(uuid4())
    outcome = await fetching.run(turn_of(FetchPayload(run_id=run_id, source="numbers", batch=0, batch_size=4)), given)
    assert isinstance(outcome, Done)
    found = Fetched.model_validate(outcome.result)
    [batch] = found.batches
    return BatchPayload(
        run_id=run_id,
        source="numbers",
        batch=0,
        manifest=batch.manifest,
        sha256=batch.sha256,
        fetched_at=found.fetched_at,
    )


class Counted(asyncio.Semaphore):
    entered = 0

    async def __aenter__(self) -> None:
        self.entered += 1
        await super().__aenter__()


async def test_ingesters_and_hooks_share_the_cores(bench: Bench) -> None:
    """Each of their commands takes one of the same places, and gives it back."""
    bench.hook("sevens", SEVENS)
    bench.source("numbers", config={"total": 4}, hooks=["sevens"])
    given = IngestResources(bench.config)
    given.places = places = Counted(1)
    payload = await fetched(bench, given)
    assert places.entered == 1
    await hooking.run(turn_of(payload), given)
    assert (places.entered, places.locked()) == (2, False)
    bench.source("tap", "", protocol="singer")
    given.sources["tap"] = IngestResources(bench.config).sources["tap"]
    await fetching.run(turn_of(FetchPayload(run_id=str(uuid4()), source="tap", batch=0, batch_size=4)), given)
    assert (places.entered, places.locked()) == (3, False)


async def test_copies_of_batches_count_as_scratch_space_and_are_given_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.hook("sevens", SEVENS)
    bench.source("numbers", config={"total": 4}, hooks=["sevens"])
    given = IngestResources(bench.config)
    payload = await fetched(bench, given)
    assert given.scratch.used == 0
    taken: list[int] = []
    take = given.scratch.take

    def counted(size: int) -> None:
        taken.append(size)
        take(size)

    monkeypatch.setattr(given.scratch, "take", counted)

    outcome = await hooking.run(turn_of(payload), given)
    assert isinstance(outcome, Done)
    hooked = Hooked.model_validate(outcome.result)
    copied = len(await given.store.read(payload.manifest.replace("_manifest.json", "records.jsonl")))
    assert taken.count(copied) >= 2, "the records, and what the hook reads of them"
    assert given.scratch.used == 0
    step = payload.model_copy(update={"manifest": hooked.manifest, "sha256": hooked.sha256})
    assert isinstance(await publishing.run(turn_of(step), given), Done)
    assert given.scratch.used == 0

    given.scratch.budget = copied - 1
    for run, told in ((hooking.run, payload), (publishing.run, step)):
        with pytest.raises(InfrastructureError) as full:
            await run(turn_of(told), given)
        assert full.value.code == "disk_full"
    assert given.scratch.used == 0
