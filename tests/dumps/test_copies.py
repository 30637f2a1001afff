"""Copies of databases on the disk: which one counts, and whether there is room for another."""

import errno
import os
import shutil
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from paddock.dumps.copies import SPARE, Copies, NoRoom, jobs_with_copies
from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.model import JobId

AT = datetime(2026, 11, 16, 9, 30, 0, 5, tzinfo=UTC)


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    return Copies(tmp_path / "copies", JobId(uuid4()))


def made(copies: Copies, name: str) -> Path:
    room = copies.reserve(name, 1000, None)
    room.file.write_bytes(b"x" * 1000)
    room.free()
    return room.file


def test_a_copy_counts_only_with_its_marker(copies: Copies) -> None:
    path = made(copies, "a1")
    assert copies.find("a1") is None
    copies.mark("a1", AT)
    found = copies.find("a1")
    assert found is not None
    assert (found.path, found.point_in_time) == (path, AT)
    assert copies.find("b2") is None


@pytest.mark.parametrize("harm", ["shorter", "gone", "other marker", "no json"])
def test_a_copy_that_is_not_what_its_marker_says_is_none(copies: Copies, harm: str) -> None:
    path = made(copies, "a1")
    copies.mark("a1", AT)
    marker = path.with_suffix(".done")
    if harm == "shorter":
        os.truncate(path, 10)
    elif harm == "gone":
        path.unlink()
    elif harm == "other marker":
        marker.write_text(marker.read_text().replace("a1", "a2"))
    else:
        marker.write_text("{")
    assert copies.find("a1") is None


def test_only_its_owner_may_look_into_its_folders(copies: Copies) -> None:
    path = made(copies, "a1")
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_copy_is_dropped_with_all_that_is_its_own_and_no_other(copies: Copies) -> None:
    first, other = made(copies, "a1"), made(copies, "b2")
    copies.mark("a1", AT)
    first.with_name("a1.db.wal").write_bytes(b"x")
    copies.drop("a1")
    assert [file.name for file in first.parent.iterdir()] == [other.name]
    copies.remove()
    assert not first.parent.exists()


def test_room_is_asked_of_the_disk_and_of_the_budget(copies: Copies, tmp_path: Path) -> None:
    assert copies.lacking(1000, None) is None
    assert "bytes free" in str(copies.lacking(1 << 60, None))
    made(Copies(tmp_path / "copies", JobId(uuid4())), "other")
    assert copies.lacking(1000, 2000) is None
    assert "work_bytes allows 1,999" in str(copies.lacking(1000, 1999))


def test_of_two_who_want_the_last_room_one_gets_it(copies: Copies, tmp_path: Path) -> None:
    other = Copies(tmp_path / "copies", JobId(uuid4()))
    room = copies.reserve("a1", 1000, 1500)
    with pytest.raises(NoRoom, match="copies hold 1,000 bytes, this one needs 1,000, and work_bytes allows 1,500"):
        other.reserve("b2", 1000, 1500)
    # What is written of it takes no more than was promised.
    room.file.write_bytes(b"x" * 600)
    assert other.lacking(500, 1500) is None
    room.free()
    assert other.lacking(900, 1500) is None


def test_the_disk_too_is_promised_only_once(copies: Copies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2500 + SPARE))
    copies.reserve("a1", 2000, None)
    with pytest.raises(NoRoom, match="bytes free"):
        Copies(tmp_path / "copies", JobId(uuid4())).reserve("b2", 2000, None)


def test_without_room_nothing_is_made(copies: Copies, tmp_path: Path) -> None:
    """On a full disk not even a folder could be."""
    with pytest.raises(NoRoom):
        copies.reserve("a1", 1 << 60, None)
    assert not (tmp_path / "copies").exists()


def test_who_is_killed_holds_no_room(copies: Copies, tmp_path: Path) -> None:
    """Only what it wrote: that is there until it is dropped."""
    script = f"""
import os
from pathlib import Path
from paddock.dumps.copies import Copies
Copies(Path({str(tmp_path / "copies")!r}), "killed").reserve("a1", 1000, None).file.write_bytes(b"x" * 10)
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert (tmp_path / "copies" / "killed" / "a1.promise").exists()
    assert copies.lacking(1000, 1014) is None
    assert copies.lacking(1001, 1014) is not None


def test_folders_that_are_no_jobs_are_left_alone(copies: Copies, tmp_path: Path) -> None:
    made(copies, "a1")
    (tmp_path / "copies" / "somebody's").mkdir()
    assert len(jobs_with_copies(tmp_path / "copies")) == 1
    assert jobs_with_copies(tmp_path / "nowhere") == []


def test_a_folder_that_cannot_be_written_is_told_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o755)

    with pytest.raises(PermanentRunnerError, match="cannot be written") as refused:
        Copies(tmp_path / "file" / "copies", JobId(uuid4())).reserve("a1", 1000, None)
    assert refused.value.code == "work_dir_not_writable"
    assert "work_dir" in (refused.value.hint or "")


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_so_is_a_folder_that_is_read_only(copies: Copies, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Nothing is read-only to root, who may run this: so the system's answer is played."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(PermanentRunnerError, match=os.strerror(number)):
        copies.reserve("a1", 1000, None)
