"""What a download writes over: files of an export, and nothing of anybody's."""

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from paddock.cli import replacing
from paddock.cli.connection import Server
from paddock.cli.downloading import fetch, wanted
from paddock.cli.errors import USAGE, CommandFailed
from paddock.client.finding import ServerAddress
from paddock.demo import make_files_beside
from paddock.dumps.commands.dump_files import target
from tests.cli.test_downloading import ID, Hostile
from tests.cli.test_downloading import hostile as hostile
from tests.storage.disks import SMALL
from tests.storage.disks import small_disk as small_disk

OTHER = "019a8b1e-4c40-7000-9d6e-6f1d3c0a51e8"
ONE, TWO = "a=1/part-00000.parquet", "a=2/part-00000.parquet"


def download(hostile: Hostile, to: Path | str, files: Mapping[str, bytes], id: str = ID, *, force: bool = True) -> None:
    hostile.files = dict(files)
    server = Server(ServerAddress(hostile.url, None, "the test"))
    try:
        fetch(server, {"id": id}, wanted(str(to), force=force))
    finally:
        server.close()


def held(folder: Path) -> dict[str, bytes]:
    """Every file but the list."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != replacing.LIST)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_of_somebodys_work_is_refused_and_named(hostile: Hostile, tmp_path: Path, force: bool) -> None:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / ".git" / "HEAD").write_text("ref")
    (tmp_path / "project" / "main.py").write_text("mine")
    (tmp_path / "project" / "part-00000.parquet").write_text("old")
    before = held(tmp_path)

    with pytest.raises(CommandFailed, match=r"holds what no download left there: \.git, main\.py\.") as refused:
        download(hostile, tmp_path / "project", {"part-00000.parquet": b"new"}, force=force)

    assert refused.value.exit_code == USAGE
    assert "new or an empty folder" in str(refused.value.hint)
    assert (held(tmp_path), hostile.asked) == (before, [])


def test_what_an_earlier_export_left_is_replaced_whole(hostile: Hostile, tmp_path: Path) -> None:
    download(hostile, tmp_path / "out", {ONE: b"one", TWO: b"two"})
    with pytest.raises(CommandFailed, match="holds an earlier download") as refused:
        download(hostile, tmp_path / "out", {ONE: b"new"}, OTHER, force=False)
    assert "--force" in str(refused.value.hint)

    download(hostile, tmp_path / "out", {ONE: b"new"}, OTHER)

    assert held(tmp_path) == {f"out/{ONE}": b"new"}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [replacing.LIST, "a=1"]


def test_files_of_the_same_names_are_replaced_without_a_list(hostile: Hostile, tmp_path: Path) -> None:
    download(hostile, tmp_path / "out", {ONE: b"one"})
    (tmp_path / "out" / replacing.LIST).unlink()
    download(hostile, tmp_path / "out", {ONE: b"new"})
    assert held(tmp_path) == {f"out/{ONE}": b"new"}


def test_a_file_that_was_changed_since_is_somebodys(hostile: Hostile, tmp_path: Path) -> None:
    download(hostile, tmp_path / "out", {ONE: b"one", TWO: b"two"})
    (tmp_path / "out" / TWO).write_bytes(b"TWO")

    with pytest.raises(CommandFailed, match=r"left there: a=2\."):
        download(hostile, tmp_path / "out", {ONE: b"new"}, OTHER)
    assert held(tmp_path / "out") == {ONE: b"one", TWO: b"TWO"}


def test_what_came_into_the_folder_during_the_download_is_kept(hostile: Hostile, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    hostile.before_file = lambda: (tmp_path / "out" / "notes").write_text("mine")

    with pytest.raises(CommandFailed, match=r"left there: notes\."):
        download(hostile, tmp_path / "out", {ONE: b"one"}, force=False)
    assert (tmp_path / "out" / "notes").read_text() == "mine"

    (tmp_path / "out" / "notes").unlink()
    hostile.before_file = None
    download(hostile, tmp_path / "out", {ONE: b"one"}, force=False)
    assert held(tmp_path) == {f"out/{ONE}": b"one"}


def test_a_download_that_was_killed_while_it_replaced_is_repaired_by_the_next(
    hostile: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download(hostile, tmp_path / "out", {ONE: b"one", TWO: b"two", "a=3/part-00000.parquet": b"three"})

    def killed(*_: Path) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(replacing, "_remove_empty", killed)
        with pytest.raises(SystemExit):
            download(hostile, tmp_path / "out", {ONE: b"new"}, OTHER)
    assert len(held(tmp_path / "out")) == 2

    download(hostile, tmp_path / "out", {ONE: b"new"}, OTHER)
    assert held(tmp_path) == {f"out/{ONE}": b"new"}


def test_the_folder_one_stands_in_takes_an_export(
    hostile: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    download(hostile, ".", {ONE: b"one", TWO: b"two"})
    download(hostile, ".", {ONE: b"new"}, OTHER)
    assert held(tmp_path) == {ONE: b"new"}


def test_a_link_to_a_folder_stays_a_link(hostile: Hostile, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    download(hostile, tmp_path / "link", {ONE: b"one"})
    download(hostile, tmp_path / "link", {ONE: b"new"}, OTHER)
    assert (tmp_path / "link").is_symlink()
    assert held(tmp_path / "real") == {ONE: b"new"}


def test_a_link_inside_the_folder_is_neither_followed_nor_replaced(hostile: Hostile, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "a=1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CommandFailed, match=r"left there: a=1\."):
        download(hostile, tmp_path / "out", {ONE: b"one"})
    assert held(tmp_path) == {}


def test_a_file_is_no_folder(hostile: Hostile, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    (tmp_path / "nowhere").symlink_to("not-there")
    for name in ("notes", "nowhere"):
        with pytest.raises(CommandFailed, match=f"{name} is not a folder"):
            download(hostile, tmp_path / name, {ONE: b"one"})
    assert held(tmp_path) == {"notes": b"mine"}


def test_only_a_regular_file_is_replaced_by_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "n.csv")
    os.mkfifo(tmp_path / "n.sql")
    for refused in (
        lambda: wanted(str(tmp_path / "n.csv"), force=True),
        lambda: target(str(tmp_path / "n.sql"), force=True),
    ):
        with pytest.raises(CommandFailed, match="not a regular file"):
            refused()


def test_a_link_that_leads_nowhere_is_not_written_over_unless_told(tmp_path: Path) -> None:
    (tmp_path / "n.sql").symlink_to("not-there")
    with pytest.raises(CommandFailed, match="is there already"):
        target(str(tmp_path / "n.sql"))


def test_a_full_disk_leaves_the_earlier_export_as_it_was(hostile: Hostile, small_disk: Path) -> None:
    earlier = {ONE: b"one", TWO: b"two"}
    download(hostile, small_disk, earlier)
    with pytest.raises(CommandFailed, match="No space left"):
        download(hostile, small_disk, {ONE: b"new", TWO: bytes(2 * SMALL)}, OTHER)
    assert {name: (small_disk / name).read_bytes() for name in earlier} == earlier


def test_two_downloads_do_not_change_one_folder_at_once(hostile: Hostile, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    other = os.open(tmp_path / "out", os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(CommandFailed, match="Another process is downloading"):
            download(hostile, tmp_path / "out", {ONE: b"one"})
    finally:
        os.close(other)
    download(hostile, tmp_path / "out", {ONE: b"one"}, force=False)
    assert held(tmp_path) == {f"out/{ONE}": b"one"}


def test_the_demo_writes_into_no_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "data-demo").mkdir()
    (tmp_path / "data-demo" / "thesis").write_text("mine")
    with pytest.raises(CommandFailed, match="data-demo"):
        make_files_beside(tmp_path / "data")
    assert held(tmp_path) == {"data-demo/thesis": b"mine"}

    (tmp_path / "data-demo" / "thesis").unlink()
    assert make_files_beside(tmp_path / "data") == make_files_beside(tmp_path / "data") == tmp_path / "data-demo"
