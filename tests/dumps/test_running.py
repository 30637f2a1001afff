"""A dump turn by turn, and what may come between its turns."""

import errno
import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from paddock.dumps import copies as copies_module
from paddock.dumps import running
from paddock.dumps.copies import Copies
from paddock.dumps.database_settings import DatabaseSettings
from paddock.dumps.model import DumpOptions, DumpPayload
from paddock.dumps.resources import DumpResources
from paddock.dumps.source import Progress
from paddock.jobs.errors import StaleAttempt, TransientResourceError
from paddock.jobs.outcomes import Again, Done, Outcome, PermanentFailure
from paddock.storage.failures import UploadGone
from tests.dumps.frozen import texts
from tests.dumps.turning import CopiedDatabase, Job, Killed, configured, one_turn, to_its_end

CONTENT = {"orders": texts(1500, 400), "lines": texts(700, 300), "empty": []}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop.db").write_text(json.dumps(CONTENT))

    def source(settings: DatabaseSettings) -> CopiedDatabase:
        return CopiedDatabase(tmp_path / "shop.db")

    monkeypatch.setattr(running, "file_source", source)
    return tmp_path


def new_job(id: str = "export_20261116-093000_abc123", **options: object) -> Job:
    return Job(DumpPayload(dump_id=id, database="shop", options=DumpOptions.model_validate(options)))


def files(place: Path) -> list[str]:
    store = place / "store"
    return sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.is_file())


def copies(place: Path) -> list[Path]:
    return [path for path in place.glob(".shop.db.dumps/*/*") if path.is_file()]


async def expected(place: Path) -> bytes:
    """What nobody disturbed."""
    resources = DumpResources(configured(place, object_store=str(place / "other store")))
    finished = await to_its_end(new_job(), resources)
    return (place / "other store" / finished.key).read_bytes()


async def test_a_dump_is_one_file_and_leaves_nothing_else(place: Path) -> None:
    job = new_job()
    finished = await to_its_end(job, DumpResources(configured(place)))
    assert files(place) == [finished.key]
    assert finished.key.startswith("exports/dump_20261116-093000_abc123/")
    assert finished.key.endswith(".sql")
    assert finished.size == (place / "store" / finished.key).stat().st_size
    assert finished.tables == {"orders": 1500, "lines": 700, "empty": 0}
    assert (finished.rows, finished.restarts, finished.point_in_time) == (2200, 0, "2026-11-16T09:30:15.250Z")
    assert not copies(place)
    said = job.reports[-1]
    assert (said["phase"], said["tables_total"], said["rows"]) == ("completing", 3, 2200)


async def test_it_gives_way_and_goes_on(place: Path) -> None:
    resources = DumpResources(configured(place, dumps_slice_seconds=0.000001))
    job = new_job()
    outcome = await one_turn(job, resources)
    assert outcome == Again(timedelta(milliseconds=100))
    finished = await to_its_end(job, resources)
    assert job.attempt > 5
    assert (place / "store" / finished.key).read_bytes() == await expected(place)


async def test_what_every_try_begins_with_is_no_progress(place: Path) -> None:
    """Else one that dies there each time would never stall, which is all that ends it."""
    job = new_job()
    await to_its_end(job, DumpResources(configured(place)))
    copying, draft, sending = job.progress[:3], job.progress[3:5], job.progress[5:]
    assert copying == [False, False, True], "the name, no page yet, the whole copy"
    assert draft == [False, False], "the key, the upload"
    assert len(sending) > 3
    assert all(sending)


async def test_without_its_copy_it_begins_anew(place: Path) -> None:
    resources = DumpResources(configured(place, dumps_slice_seconds=0.000001))
    job = new_job()
    await one_turn(job, resources)
    shutil.rmtree(place / ".shop.db.dumps")
    (place / "shop.db").write_text(json.dumps({"orders": texts(10)}))
    finished = await to_its_end(job, resources)
    assert (finished.restarts, finished.tables) == (1, {"orders": 10})
    assert files(place) == [finished.key]


async def test_an_upload_that_somebody_aborted_is_begun_anew(place: Path) -> None:
    resources = DumpResources(configured(place, dumps_slice_seconds=0.000001))
    job = new_job()
    await one_turn(job, resources)
    assert await resources.parts.abort(job.payload.prefix) == 1
    with pytest.raises(UploadGone):
        await one_turn(job, resources)
    finished = await to_its_end(job, resources)
    assert finished.restarts == 1
    assert (place / "store" / finished.key).read_bytes()[-2000:] == (await expected(place))[-2000:]
    assert files(place) == [finished.key]


async def test_a_late_twin_changes_nothing(place: Path) -> None:
    """It wakes when the other has long ended, and goes on as if nothing had happened."""
    resources = DumpResources(configured(place, dumps_slice_seconds=0.000001))
    job = new_job()
    await one_turn(job, resources)
    twin = job.turn()
    finished = await to_its_end(job, resources)
    before = (place / "store" / finished.key).read_bytes()
    with pytest.raises((StaleAttempt, UploadGone)):
        await running.run(twin, resources)
    assert (place / "store" / finished.key).read_bytes() == before
    assert files(place) == [finished.key]
    assert not copies(place)


async def test_cleanup_removes_all_that_was_begun_and_nothing_of_a_retry(place: Path) -> None:
    resources = DumpResources(configured(place, dumps_slice_seconds=0.000001))
    job, retry = new_job(), new_job()
    await one_turn(job, resources)
    await one_turn(retry, resources)
    await running.clean(job.turn(cleanup=True), resources)
    assert [path.parent.name for path in copies(place)] == [str(retry.id)] * 2
    finished = await to_its_end(retry, resources)
    assert finished.restarts == 0
    assert files(place) == [finished.key]


async def test_no_room_for_a_copy_is_waited_for_and_said(place: Path) -> None:
    resources = DumpResources(configured(place, database={"work_bytes": 10}))
    job = new_job()
    outcome = await one_turn(job, resources)
    assert outcome == Again(timedelta(seconds=30))
    assert job.reports[-1]["phase"] == "waiting"
    assert "work_bytes allows 10" in job.reports[-1]["reason"]
    assert isinstance(await one_turn(job, DumpResources(configured(place))), Done | Again)


async def test_what_a_killed_copy_left_is_no_lack_of_room(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = (place / "shop.db").stat().st_size

    class Dies(CopiedDatabase):
        async def copy(self, target: Path, progress: Progress) -> datetime:
            target.write_bytes(b"x" * (size * 9 // 10))
            raise Killed

    def usage(path: object) -> SimpleNamespace:
        return SimpleNamespace(
            free=copies_module.SPARE + size * 12 // 10 - sum(f.stat().st_size for f in copies(place))
        )

    monkeypatch.setattr(shutil, "disk_usage", usage)
    job, resources = new_job(), DumpResources(configured(place))
    with monkeypatch.context() as patched:
        patched.setattr(running, "file_source", lambda settings: Dies(place / "shop.db"))
        with pytest.raises(Killed):
            await one_turn(job, resources)
    assert [path.suffix for path in copies(place)] == [".db"]
    assert (await to_its_end(job, resources)).restarts == 1


@pytest.mark.parametrize("at", ["copy", "mark"])
async def test_a_disk_that_fills_up_while_it_is_copied_is_waited_for(
    place: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    def full(*args: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    class Fills(CopiedDatabase):
        async def copy(self, target: Path, progress: Progress) -> datetime:
            target.write_bytes(b"x")
            full()

    job, resources = new_job(), DumpResources(configured(place))
    with monkeypatch.context() as patched:
        if at == "copy":
            patched.setattr(running, "file_source", lambda settings: Fills(place / "shop.db"))
        else:
            patched.setattr(Copies, "mark", full)
        with pytest.raises(TransientResourceError) as told:
            await one_turn(job, resources)
    assert told.value.code == "disk_full"
    assert not copies(place)
    await to_its_end(job, resources)


async def test_two_dumps_do_not_take_the_same_room(place: Path) -> None:
    """The second asks while the first has written nothing yet."""
    size = (place / "shop.db").stat().st_size
    resources = DumpResources(configured(place, database={"work_bytes": size * 3 // 2}))
    second = new_job("export_20261116-093000_abc124")
    outcomes: list[Outcome] = []

    class Asked(CopiedDatabase):
        async def copy(self, target: Path, progress: Progress) -> datetime:
            if not outcomes:
                outcomes.append(await one_turn(second, resources))
            return await super().copy(target, progress)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(running, "file_source", lambda settings: Asked(place / "shop.db"))
        await to_its_end(new_job(), resources)
    assert outcomes == [Again(timedelta(seconds=30))]
    assert f"work_bytes allows {size * 3 // 2:,}" in second.reports[-1]["reason"]
    await to_its_end(second, resources)


async def test_uploads_that_vanish_again_and_again_end_the_dump(place: Path) -> None:
    resources = DumpResources(configured(place, dumps_slice_seconds=0.000001))
    job = new_job()
    for _ in range(running.MOST_GONE - 1):
        await one_turn(job, resources)
        await resources.parts.abort(job.payload.prefix)
        with pytest.raises(UploadGone):
            await one_turn(job, resources)
    await one_turn(job, resources)
    await resources.parts.abort(job.payload.prefix)
    outcome = await one_turn(job, resources)
    assert isinstance(outcome, PermanentFailure)
    assert outcome.error.code == "upload_keeps_vanishing"
    assert "removed 5 times" in outcome.error.message
    assert "lifecycle rule" in str(outcome.error.hint)
    await running.clean(job.turn(cleanup=True), resources)
    assert files(place) == []
    assert not copies(place)
