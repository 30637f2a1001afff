"""What only a store that is a folder has to fear: links, kills, full disks, folders that come and go."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from paddock.storage.leftovers import collect
from paddock.storage.local import LocalBackend
from paddock.storage.store import Store, open_store
from tests.storage.disks import SMALL
from tests.storage.disks import small_disk as small_disk
from tests.storage.looking import keys

DRAFT = "owner/0123456789ab4def8123456789abcdef"


async def test_no_link_leads_out_of_the_root(folder: Store, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = tmp_path / "store"
    root.mkdir()
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")

    for attempt in (folder.read_range("folder/secret", 0, 9), folder.read("file"), folder.put("folder/new", b"")):
        with pytest.raises(PermanentRunnerError) as refused:
            await attempt
        assert refused.value.code == "store_denied"
    assert await folder.size("folder/secret") is None
    assert await keys(folder) == []
    await folder.delete(["folder/secret"])
    assert (await folder.delete_below("folder")).count == 0
    assert (outside / "secret").read_bytes() == b"secret"
    assert [*outside.iterdir()] == [outside / "secret"]


async def test_writing_to_a_link_replaces_the_link(folder: Store, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"outside")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "x").symlink_to(tmp_path / "outside")

    assert not await folder.create("x", b"new")
    await folder.put("x", b"new")

    assert await folder.read("x") == b"new"
    assert (tmp_path / "outside").read_bytes() == b"outside"


async def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")

    await open_store(str(tmp_path / "link")).put("x", b"x")

    assert (tmp_path / "disk" / "x").read_bytes() == b"x"


async def test_a_pipe_is_not_an_object(folder: Store, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    os.mkfifo(tmp_path / "store" / "pipe")

    assert await folder.size("pipe") is None
    assert await keys(folder) == []


async def test_a_name_is_a_file_or_a_folder(folder: Store) -> None:
    await folder.put("a", b"")
    await folder.put("b/c", b"")

    assert await folder.size("a/x") is None
    assert await folder.size("b") is None
    for attempt in (folder.put("a/x", b""), folder.put("b", b"")):
        with pytest.raises(PermanentRunnerError) as refused:
            await attempt
        assert refused.value.code == "store_denied"


async def test_empty_folders_go_with_their_last_file(folder: Store, tmp_path: Path) -> None:
    await folder.put("a/b/c/1", b"")
    await folder.put("a/2", b"")

    await folder.delete(["a/b/c/1"])

    assert [*(tmp_path / "store").rglob("*")] == [tmp_path / "store/a", tmp_path / "store/a/2"]
    await folder.delete_below("a")
    assert [*(tmp_path / "store").rglob("*")] == []


@pytest.mark.parametrize("name", ["put", "create", "delete"])
async def test_who_cleans_up_behind_a_cancelled_change_is_not_overtaken_by_it(
    folder: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        begun.set()
        may_end.wait()
        ended.set()

    monkeypatch.setattr(folder._backend, name, slow)
    caller = asyncio.create_task(folder.delete(["x"]) if name == "delete" else getattr(folder, name)("x", b""))
    await asyncio.to_thread(begun.wait)
    caller.cancel()
    asyncio.get_running_loop().call_later(0.05, may_end.set)
    with pytest.raises(asyncio.CancelledError):
        await caller

    assert ended.is_set()


async def test_what_killed_writers_of_a_name_left_goes_alone(folder: Store, tmp_path: Path) -> None:
    await folder.put("a/x", b"whole")
    for name in ("x#1", "x#2", "y#1"):
        (tmp_path / "store/a" / name).write_bytes(b"ha")

    await folder.delete_unfinished(["a/x", "a/z", "b/x", "a/x/y"])

    assert await keys(folder, unfinished=True) == ["a/x", "a/y#1"]


async def test_writers_do_not_mind_those_who_tidy(folder: Store) -> None:
    async def come_and_go(number: int) -> None:
        for _ in range(60):
            await folder.put(f"a/b/c/{number}", b"x")
            await folder.delete([f"a/b/c/{number}"])

    await asyncio.gather(*(come_and_go(number) for number in range(8)))

    assert await keys(folder, unfinished=True) == []


async def test_a_folder_removed_between_making_and_using_it_is_made_again(
    folder: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = folder._backend
    assert isinstance(backend, LocalBackend)
    descend = backend._descend
    tidying = iter([tmp_path / "store/a/b", tmp_path / "store/a"])

    def tidied(segments: Sequence[str], *, make: bool = False) -> int:
        opened = descend(segments, make=make)
        for empty in tidying:
            empty.rmdir()
        return opened

    monkeypatch.setattr(backend, "_descend", tidied)

    await folder.put("a/b/c", b"x")

    assert await folder.read("a/b/c") == b"x"


def test_one_of_many_creates(folder: Store) -> None:
    with ThreadPoolExecutor(16) as threads:
        made = [*threads.map(lambda number: folder._backend.create("one", b"%d" % number), range(64))]

    assert made.count(True) == 1
    assert folder._backend.read_range("one", 0, 9) == b"%d" % made.index(True)


UPLOAD = """
    import sys
    from pathlib import Path
    from paddock.storage.local import LocalBackend

    def source(length):
        print("begun", flush=True)
        sys.stdin.read()
        return b"more"

    given = iter([b"x" * 1000])
    LocalBackend(Path(sys.argv[1])).write(sys.argv[2], lambda length: next(given, None) or source(length), 2000)
"""


async def nobody(drafts: Sequence[str]) -> Set[str]:
    return frozenset()


async def test_a_killed_upload_leaves_what_only_the_tidying_sees(folder: Store, tmp_path: Path) -> None:
    key = f"{DRAFT}/part-00000.parquet"
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(UPLOAD), str(folder.local), key],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"begun\n"
        child.send_signal(signal.SIGKILL)

    assert await keys(folder) == []
    assert await folder.size(key) is None
    assert await keys(folder, unfinished=True) == [f"{key}#1"]
    # The same name can be written again beside it.
    await folder.put(key, b"whole")

    collected = await collect(folder, nobody, datetime.now(UTC) + timedelta(hours=1))

    assert (collected.count, collected.bytes) == (1, 1005)
    assert [*(tmp_path / "store").iterdir()] == []


async def test_a_cancelled_upload_leaves_nothing(folder: Store, tmp_path: Path) -> None:
    # A file that never ends: whoever reads it waits for more.
    os.mkfifo(tmp_path / "endless")
    endless = os.open(tmp_path / "endless", os.O_RDWR)
    os.write(endless, b"some")
    upload = asyncio.create_task(folder.upload("x", tmp_path / "endless"))
    while not await keys(folder, unfinished=True):
        pass

    upload.cancel()
    await asyncio.sleep(0)
    os.write(endless, b"more")
    with pytest.raises(asyncio.CancelledError):
        await upload
    os.close(endless)

    assert await keys(folder, unfinished=True) == []


async def test_a_file_that_shrank_is_not_kept(folder: Store) -> None:
    with pytest.raises(TransientResourceError) as refused:
        folder._backend.write("x", lambda length: b"", 10)

    assert refused.value.code == "upload_incomplete"
    assert await keys(folder, unfinished=True) == []


async def test_a_full_disk_is_said_and_nothing_half_stays(small_disk: Path, tmp_path: Path) -> None:
    store = open_store(str(small_disk))
    (tmp_path / "large").write_bytes(b"x" * 2 * SMALL)

    for attempt in (
        store.upload("a/x", tmp_path / "large"),
        store.upload("a/x", tmp_path / "large", give=True),
        store.put("a/x", b"x" * 2 * SMALL),
        store.create("a/x", b"x" * 2 * SMALL),
    ):
        with pytest.raises(TransientResourceError) as refused:
            await attempt
        assert refused.value.code == "disk_full"

    assert await keys(store, unfinished=True) == []
    await store.put("a/x", b"x" * (SMALL // 2))


TOO_LARGE = """
    import asyncio, resource, sys
    from paddock.jobs.errors import TransientResourceError
    from paddock.storage.store import open_store

    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    store = open_store(sys.argv[1])
    try:
        asyncio.run(store.put("x", b"x" * 2000))
    except TransientResourceError as problem:
        print(problem.code)
"""


async def test_a_limit_on_file_sizes_is_a_full_disk(folder: Store) -> None:
    command = [sys.executable, "-c", textwrap.dedent(TOO_LARGE), str(folder.local)]

    assert subprocess.check_output(command, text=True) == "disk_full\n"
    assert await keys(folder, unfinished=True) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_that_may_not_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o500)

    with pytest.raises(PermanentRunnerError) as refused:
        await open_store(str(tmp_path / "store")).check()

    assert refused.value.code == "store_denied"
