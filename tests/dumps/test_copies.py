"""Copies of databases on the disk: which one counts, and whether there is room for another."""

import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from paddock.dumps.copies import Copies, jobs_with_copies
from paddock.jobs.model import JobId

AT = datetime(2026, 11, 16, 9, 30, 0, 5, tzinfo=UTC)


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    return Copies(tmp_path / "copies", JobId(uuid4()))


def made(copies: Copies, name: str, before: str | None = None) -> Path:
    path = copies.place(name, before)
    path.write_bytes(b"x" * 1000)
    return path


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


def test_a_new_copy_takes_the_place_of_the_one_before_and_of_no_other(copies: Copies) -> None:
    first, other = made(copies, "a1"), made(copies, "b2")
    copies.mark("a1", AT)
    made(copies, "c3", before="a1")
    assert not first.exists()
    assert other.exists()
    copies.remove()
    assert not first.parent.exists()


def test_room_is_asked_of_the_disk_and_of_the_budget(copies: Copies, tmp_path: Path) -> None:
    assert copies.lacking(1000, None) is None
    assert "bytes free" in str(copies.lacking(1 << 60, None))
    made(Copies(tmp_path / "copies", JobId(uuid4())), "other")
    assert copies.lacking(1000, 2000) is None
    assert "work_bytes allows 1,999" in str(copies.lacking(1000, 1999))


def test_folders_that_are_no_jobs_are_left_alone(copies: Copies, tmp_path: Path) -> None:
    made(copies, "a1")
    (tmp_path / "copies" / "somebody's").mkdir()
    assert len(jobs_with_copies(tmp_path / "copies")) == 1
    assert jobs_with_copies(tmp_path / "nowhere") == []
