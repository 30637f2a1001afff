"""A kind of another package hears that a batch is published, and gets a delivery of each."""

import asyncio
from pathlib import Path

import orjson
import pytest
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from paddock.api.app import create_app
from paddock.config import load
from paddock.db.pool import Transaction
from paddock.ingest import kinds as ingest_kinds
from paddock.ingest import runs
from paddock.ingest.answering import batch_with_steps
from paddock.jobs.bulk import BULK
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.kinds import Kind, Kinds
from paddock.jobs.model import Event, NewJob
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.metrics import Metrics
from tests.ingest.conftest import SEVENS, Bench


class Load(BaseModel):
    run: str
    batch: int
    file: str
    rows: int


async def load_file(turn: Turn[Load]) -> Outcome:
    return done()


async def after_batch(tx: Transaction, event: Event) -> NewJob | None:
    wanted = {name: event.data[name] for name in ("run", "batch", "file", "rows")}
    return NewJob("load_file", wanted, owner=event.owner) if event.data["source"] == "numbers" else None


LOAD = Kind(name="load_file", payload=Load, handler=load_file, hears={"IngestBatchPublished": after_batch})


@pytest.mark.parametrize("source", ["numbers", "others"])
async def test_it_hears_of_each_batch_once(dsn: str, settings: CoreSettings, tmp_path: Path, source: str) -> None:
    config = load({"PADDOCK_DATA": str(tmp_path / "data")}, tmp_path)
    known = Kinds([*ingest_kinds.step_kinds(config), *ingest_kinds.internal_kinds(config), BULK, LOAD])
    async with open_core(dsn, known, settings, metrics=Metrics(CollectorRegistry())) as core:
        bench = Bench(core, tmp_path, config)
        bench.source(source, config={"total": 5}, batch_size=2)
        run = await bench.run(source)
        async with core.db.transaction() as tx:
            rows = await tx.fetch("SELECT owner, payload FROM jobs WHERE kind = 'load_file'")
        found = [orjson.loads(row["payload"]) for row in rows]
        files = await runs.files(core.db, source)
    assert (run.status, len(files)) == ("completed", 3)
    expected = [{"run": str(run.id), "batch": file.batch, "file": str(file.id), "rows": file.rows} for file in files]
    by_batch = sorted(found, key=lambda one: int(one["batch"]))
    assert by_batch == (sorted(expected, key=lambda one: int(str(one["batch"]))) if source == "numbers" else [])
    assert {row["owner"] for row in rows} <= {run.owner}


async def test_what_another_package_made_of_a_retried_batch_is_none_of_its_steps(
    dsn: str, settings: CoreSettings, tmp_path: Path
) -> None:
    config = load({"PADDOCK_DATA": str(tmp_path / "data")}, tmp_path)
    known = Kinds([*ingest_kinds.step_kinds(config), *ingest_kinds.internal_kinds(config), BULK, LOAD])
    async with open_core(dsn, known, settings, metrics=Metrics(CollectorRegistry())) as core:
        bench = Bench(core, tmp_path, config)
        bench.hook("picky", "import sys; sys.exit(64)")
        bench.source("numbers", config={"total": 2}, hooks=["picky"])
        run = await bench.run("numbers")
        bench.hook("picky", SEVENS)
        await runs.retry_batch(core, run, 0, actor="ann")
        async with bench.worker(), asyncio.timeout(120):
            while not await _loads(core):  # noqa: ASYNC110  what is waited for is in the database
                await asyncio.sleep(0.01)

        batch = await runs.batch(core.db, run, 0)
        assert batch is not None
        shown = await batch_with_steps(create_app(core, bench.config).state.plane, run, batch)
    assert [step["step"] for step in shown["steps"]] == ["fetch", "hooks", "hooks", "publish"]


async def _loads(core: Core) -> int:
    async with core.db.transaction() as tx:
        return int(await tx.fetchval("SELECT count(*) FROM jobs WHERE kind = 'load_file'"))
