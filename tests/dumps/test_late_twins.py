"""Two processes at one dump: the first was taken for dead while it copied, the other went on, and the first wakes."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from paddock.dumps import running
from paddock.dumps.copies import Copies
from paddock.dumps.model import DumpPayload
from paddock.dumps.resources import DumpResources
from paddock.dumps.sqlite import copying
from paddock.jobs.errors import InfrastructureError, StaleAttempt, TransientResourceError
from paddock.jobs.outcomes import Again
from tests.dumps.turning import Job, configured, one_turn, to_its_end

ROWS = 3_000


class Stopped:
    """Where SIGSTOP would hold a process: the first who comes by, and nobody after."""

    def __init__(self) -> None:
        self.here, self.goes_on = threading.Event(), threading.Event()

    def __call__(self) -> None:
        if not self.here.is_set():
            self.here.set()
            assert self.goes_on.wait(60)


@pytest.fixture
def resources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DumpResources:
    shop = apsw.Connection(str(tmp_path / "shop.db"))
    shop.pragma("journal_mode", "wal")
    shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT)")
    shop.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
        "INSERT INTO orders SELECT i, hex(randomblob(50)) FROM n",
        (ROWS,),
    )
    shop.close()
    monkeypatch.setattr(copying, "PAGES", 10)
    return DumpResources(configured(tmp_path, dumps_slice_seconds=0.000001))


def new_job() -> Job:
    return Job(DumpPayload(dump_id="export_20261116-093000_abc123", database="shop"))


async def the_first(job: Job, resources: DumpResources, stopped: Stopped) -> "asyncio.Task[object]":
    turn = asyncio.create_task(running.run(job.turn(), resources))
    assert await asyncio.to_thread(stopped.here.wait, 60)
    return turn


def after(stopped: Stopped, do: Callable[..., object]) -> Callable[..., object]:
    def done(*args: object) -> object:
        answer = do(*args)
        stopped()
        return answer

    return done


async def test_who_wakes_after_its_copy_was_made_does_not_take_it_from_the_other(
    resources: DumpResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, job = Stopped(), new_job()
    monkeypatch.setattr(Copies, "mark", after(stopped, Copies.mark))
    first = await the_first(job, resources, stopped)
    # The copy is marked, and so good enough for the other.
    assert isinstance(await one_turn(job, resources), Again)
    stopped.goes_on.set()
    with pytest.raises(StaleAttempt):
        await first
    finished = await to_its_end(job, resources)
    assert (finished.restarts, finished.rows) == (0, ROWS)


async def test_who_wakes_in_the_middle_of_its_copy_changes_nothing(
    resources: DumpResources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, job = Stopped(), new_job()
    monkeypatch.setattr(copying.Copying, "step", after(stopped, copying.Copying.step))
    first = await the_first(job, resources, stopped)
    assert isinstance(await one_turn(job, resources), Again)
    stopped.goes_on.set()
    # Its file is gone, or its save is refused, whichever it meets first: what it says then nobody hears.
    with pytest.raises((StaleAttempt, InfrastructureError)):
        await first
    finished = await to_its_end(job, resources)
    assert (finished.restarts, finished.rows) == (1, ROWS)
    store = tmp_path / "store"
    assert [str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()] == [finished.key]
    assert list((tmp_path / ".shop.db.dumps").glob("*/*")) == []


@pytest.mark.parametrize("format", ["sql", "sqlite"])
async def test_a_copy_that_goes_while_it_is_read_is_no_word_about_the_source(
    resources: DumpResources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    job = Job(DumpPayload.model_validate({**new_job().payload.model_dump(), "format": format}))
    await one_turn(job, resources)
    found = Copies.find

    def gone(copies: Copies, name: str) -> object:
        answer = found(copies, name)
        for path in tmp_path.glob(".shop.db.dumps/*/*.db"):
            path.unlink()
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(Copies, "find", gone)
        with pytest.raises(TransientResourceError) as told:
            await one_turn(job, resources)
    assert told.value.code == "copy_gone"
    finished = await to_its_end(job, resources)
    assert (finished.restarts, finished.rows) == (1, ROWS)
    # Of the copy itself nothing was asked but how many rows it has; people read both in the job's figures.
    assert job.reports[-1]["rows"] == ROWS
