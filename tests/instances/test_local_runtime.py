"""Processes of this machine: found by their folder alone, started once however often that is asked, and gone without a trace."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import psutil
import pytest

from paddock.runtimes import folders, keeper, local
from paddock.runtimes.folders import InstanceFolder
from paddock.runtimes.local import LocalRuntime
from paddock.runtimes.runtime import Found, NoRoom, Start
from tests.instances.world import until
from tests.processes.running import alive

TINY = (sys.executable, str(Path(__file__).with_name("tiny_server.py")))


def a_start(instance: UUID | None = None, n: int = 1) -> Start:
    id = instance or uuid4()
    return Start(
        name=f"ladybug-wrapper-{id}-{n}",
        instance=id,
        generation=uuid4(),
        wrapper_type="ladybug",
        memory_bytes=1 << 30,
        cpu=1,
        disk_bytes=1 << 20,
        token_sha256="0" * 64,
        owner="ada",
    )


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    made = LocalRuntime(tmp_path / "instances", TINY)
    made.place()
    yield made
    for name in ("hold", "deaf"):
        (made.root / name).unlink(missing_ok=True)
    for found in await made.list():
        await gone(made, found.name, timedelta(0))


async def up(runtime: LocalRuntime, name: str) -> Found:
    async def look() -> Found | None:
        found = await runtime.get(name)
        return found if found is not None and found.state == "up" else None

    return await until(f"{name} is up", look)


async def gone(runtime: LocalRuntime, name: str, grace: timedelta = timedelta(seconds=5)) -> None:
    async def look() -> bool:
        return await runtime.delete(name, grace=grace)

    await until(f"{name} is gone", look)


def process_of(runtime: LocalRuntime, start: Start) -> psutil.Process:
    return psutil.Process(InstanceFolder(runtime.root, start.instance).read("run.json")["pid"])


async def test_it_is_started_found_and_gone(runtime: LocalRuntime) -> None:
    start = a_start()
    assert await runtime.get(start.name) is None
    assert await runtime.start(start)
    found = await up(runtime, start.name)
    assert (found.instance, found.generation, found.uid) == (start.instance, start.generation, str(start.generation))
    assert found.address is not None
    process = process_of(runtime, start)
    assert f"begun {start.name}" in (await runtime.logs(start.name) or "")
    assert (await runtime.usage(start.name) or 0) != 0
    assert [one.name for one in await runtime.list()] == [start.name]
    assert await runtime.list(after=start.name) == []
    await gone(runtime, start.name)
    assert not alive(process)
    assert await runtime.get(start.name) is None
    assert {path.name for path in runtime.root.iterdir()} == {"place", ".starts"}
    assert [path.name for path in (runtime.root / ".starts").iterdir()] == [str(start.instance)], (
        "its number, and no more"
    )
    assert await runtime.delete(start.name), "one that is gone is gone"
    assert await runtime.logs(start.name) is None


async def test_started_twice_there_is_one(runtime: LocalRuntime) -> None:
    start = a_start()
    (runtime.root / "hold").touch()
    assert await runtime.start(start)
    assert (await runtime.get(start.name)).state == "starting"  # type: ignore[union-attr]  # it is there
    assert await runtime.start(start)
    # As after a crash between the process and the note of it: nobody knows that one runs.
    folder = InstanceFolder(runtime.root, start.instance)

    async def begun() -> bool:
        return "begun" in folder.tail_of_log()

    await until("it has the lock", begun)
    folder.forget("spawned.json")
    assert await runtime.start(start)
    [[second, started]] = folder.read("spawned.json")["processes"]

    async def over() -> bool:
        return bool(keeper.started_of(second) != started)

    await until("the second has ended", over)
    assert (await runtime.get(start.name)).state == "starting"  # type: ignore[union-attr]  # the first holds the lock
    (runtime.root / "hold").unlink()
    await up(runtime, start.name)
    assert folder.tail_of_log().count("begun") == 1
    await gone(runtime, start.name)


async def test_a_new_generation_ends_the_one_before_and_keeps_what_it_loaded(runtime: LocalRuntime) -> None:
    first = a_start()
    await runtime.start(first)
    await up(runtime, first.name)
    process = process_of(runtime, first)
    (runtime.root / str(first.instance) / "current").write_text("1")
    second = a_start(first.instance, 2)

    async def begun() -> bool:
        return await runtime.start(second)

    await until("the second is started", begun)
    assert not alive(process)
    await up(runtime, second.name)
    assert await runtime.get(first.name) is None
    assert (runtime.root / str(first.instance) / "current").read_text() == "1"
    assert await runtime.delete(first.name), "a later start is there: the earlier is gone"
    assert await runtime.delete(second.name, uid="another")
    assert (await runtime.get(second.name)).state == "up"  # type: ignore[union-attr]  # it was not meant
    await gone(runtime, second.name)


async def test_a_delete_of_a_later_name_takes_what_earlier_ones_left(runtime: LocalRuntime) -> None:
    first = a_start()
    await runtime.start(first)
    await up(runtime, first.name)
    await gone(runtime, f"ladybug-wrapper-{first.instance}-2")
    assert not (runtime.root / str(first.instance)).exists()


async def test_one_that_does_not_hear_is_killed_after_the_grace(runtime: LocalRuntime) -> None:
    (runtime.root / "deaf").touch()
    start = a_start()
    await runtime.start(start)
    await up(runtime, start.name)
    process = process_of(runtime, start)
    assert not await runtime.delete(start.name, grace=timedelta(hours=1))
    assert alive(process)
    await gone(runtime, start.name, timedelta(0))
    assert not alive(process)


async def test_a_start_that_a_delete_overtook_leaves_no_process(runtime: LocalRuntime) -> None:
    start = a_start()
    await runtime.start(start)
    await gone(runtime, start.name)
    assert not [
        one for one in psutil.process_iter(["cmdline"]) if str(start.instance) in " ".join(one.info["cmdline"] or [])
    ]
    assert not (runtime.root / str(start.instance)).exists()


async def test_how_it_ended_is_told(runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    start = a_start()
    await runtime.start(start)
    await up(runtime, start.name)
    process_of(runtime, start).kill()

    async def ended() -> Found | None:
        found = await runtime.get(start.name)
        return found if found is not None and found.state == "ended" else None

    assert (await until("it has ended", ended)).why == "exited"

    async def noted() -> bool:
        ended = InstanceFolder(runtime.root, start.instance).read("ended.json")
        return bool(ended.get("returncode") == -signal.SIGKILL)

    await until("its end is noted", noted)
    monkeypatch.setattr(local, "oom_kills", lambda: 1 << 40)
    assert (await until("it has ended", ended)).why == "out_of_memory"


async def test_it_ends_with_its_keeper_and_that_is_told(runtime: LocalRuntime) -> None:
    keeping = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    keeper.keep_by(keeping.pid)
    try:
        start = a_start()
        await runtime.start(start)
        await up(runtime, start.name)
    finally:
        keeper._said.clear()
        keeping.kill()
        keeping.wait()

    async def ended() -> Found | None:
        found = await runtime.get(start.name)
        return found if found is not None and found.state == "ended" else None

    assert (await until("it has ended", ended)).why == "keeper_gone"
    assert await runtime.start(start), "the same generation may be started again"
    await up(runtime, start.name)
    await gone(runtime, start.name)


async def test_too_little_disk_is_no_room(runtime: LocalRuntime) -> None:
    with pytest.raises(NoRoom, match="bytes of disk are needed"):
        await runtime.start(replace(a_start(), disk_bytes=1 << 60))


async def test_one_that_is_loaded_is_started_again_however_little_disk_is_free(runtime: LocalRuntime) -> None:
    first = a_start()
    await runtime.start(first)
    await up(runtime, first.name)
    (runtime.root / str(first.instance) / "current").write_text("1")
    second = replace(a_start(first.instance, 2), disk_bytes=1 << 60)

    async def begun() -> bool:
        return await runtime.start(second)

    await until("the second is started", begun)
    await up(runtime, second.name)
    assert (runtime.root / str(first.instance) / "current").read_text() == "1"


@pytest.fixture
def late(runtime: LocalRuntime) -> LocalRuntime:
    """Of another replica, which slept between the fence and its start."""
    return LocalRuntime(runtime.root, TINY)


async def test_a_start_that_slept_while_the_next_one_came_leaves_that_alone(
    runtime: LocalRuntime, late: LocalRuntime
) -> None:
    first, second = a_start(), None
    await runtime.start(first)
    await up(runtime, first.name)
    second = a_start(first.instance, 2)

    async def begun() -> bool:
        return await runtime.start(second)

    await until("the second is started", begun)
    await up(runtime, second.name)
    process = process_of(runtime, second)

    assert not await late.start(first)

    assert (await runtime.get(second.name)).state == "up"  # type: ignore[union-attr]  # it is there
    assert alive(process)
    assert not (runtime.root / str(first.instance) / "stopping").exists()
    assert await runtime.get(first.name) is None


@pytest.mark.parametrize("ran", [True, False], ids=["after it ran", "before it ran"])
async def test_a_start_that_slept_while_its_instance_was_deleted_makes_nothing(
    runtime: LocalRuntime, late: LocalRuntime, ran: bool
) -> None:
    start = a_start()
    if ran:
        await runtime.start(start)
        await up(runtime, start.name)
    await gone(runtime, start.name)

    assert not await late.start(start)

    assert not (runtime.root / str(start.instance)).exists()
    assert await runtime.list() == []
    following = a_start(start.instance, 2)
    assert await runtime.start(following), "one that was written after the delete is another"
    await up(runtime, following.name)


async def test_a_start_that_stops_halfway_holds_the_others_up_and_ends_none(
    runtime: LocalRuntime, late: LocalRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look at what runs and its process: another replica's start of the same comes then."""
    start, halfway, on = a_start(), asyncio.Event(), asyncio.Event()
    spawn = late._spawn

    async def slowly(folder: InstanceFolder, start: Start) -> None:
        halfway.set()
        await on.wait()
        await spawn(folder, start)

    monkeypatch.setattr(late, "_spawn", slowly)
    sleeping = asyncio.create_task(late.start(start))
    await asyncio.wait_for(halfway.wait(), 60)
    assert not await runtime.start(start), "ask again"
    assert not await runtime.delete(start.name), "ask again"
    on.set()
    assert await asyncio.wait_for(sleeping, 60)
    found = await up(runtime, start.name)
    assert await runtime.start(start)
    assert (await up(runtime, start.name)).address == found.address
    folder = InstanceFolder(runtime.root, start.instance)
    assert len(folder.read("spawned.json")["processes"]) == 1


async def test_what_nobody_noted_is_still_found_after_another_start(
    runtime: LocalRuntime, late: LocalRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its starter was killed before it could note the process, which tells its port while the next one is about to spawn."""
    start = a_start()
    folder = InstanceFolder(runtime.root, start.instance)
    (runtime.root / "hold").touch()
    await runtime.start(start)

    async def begun() -> bool:
        return "begun" in folder.tail_of_log()

    await until("it has the lock", begun)
    folder.forget("spawned.json")
    spawn = late._spawn

    async def just_then(folder: InstanceFolder, start: Start) -> None:
        (runtime.root / "hold").unlink()
        await up(runtime, start.name)
        await spawn(folder, start)

    monkeypatch.setattr(late, "_spawn", just_then)
    assert await late.start(start)
    assert (await up(runtime, start.name)).address is not None
    assert folder.tail_of_log().count("begun") == 1


async def test_only_so_many_that_are_gone_are_remembered(
    runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MOST_REMEMBERED", 3)
    there = a_start()
    await runtime.start(there)
    await up(runtime, there.name)
    late = [a_start() for _ in range(10)]
    for n, start in enumerate(late):
        assert await runtime.delete(start.name)
        with contextlib.suppress(FileNotFoundError):
            os.utime(runtime.root / ".starts" / str(start.instance), (n, n))
    assert len(list((runtime.root / ".starts").iterdir())) < 2 * 3 + 1
    assert (runtime.root / ".starts" / str(there.instance)).exists(), "of one that is there"
    assert not await runtime.start(late[-1]), "the newest are"


async def test_names_that_are_none_are_not_there(runtime: LocalRuntime) -> None:
    for name in ("", "x", "ladybug-wrapper-../../etc-1", "ladybug-wrapper-1"):
        assert await runtime.get(name) is None
        assert await runtime.delete(name)
    (runtime.root / "not-an-instance").mkdir()
    assert await runtime.list() == []


async def test_another_process_with_its_number_is_never_signalled(runtime: LocalRuntime) -> None:
    """Ids are used again: the folder also says when its process started."""
    start = a_start()
    await runtime.start(start)
    await up(runtime, start.name)
    process_of(runtime, start).kill()
    bystander = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        folder = InstanceFolder(runtime.root, start.instance)
        for name in ("run.json", "spawned.json"):
            facts = json.loads((folder.path / name).read_text())
            facts.update(pid=bystander.pid)
            if "processes" in facts:
                facts["processes"] = [[bystander.pid, "1"]]
            folder.write(name, facts)
        await gone(runtime, start.name, timedelta(0))
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


async def test_leftovers_of_a_killed_removal_go_at_the_next_start(runtime: LocalRuntime) -> None:
    left = runtime.root / ".gone-1234"
    (left / "db").mkdir(parents=True)
    place = runtime.place()
    assert not left.exists()
    assert runtime.place() == place


@pytest.mark.parametrize("meant", [False, True], ids=["never meant", "meant"])
async def test_what_was_loaded_outlives_a_start_that_never_ran(
    runtime: LocalRuntime, late: LocalRuntime, meant: bool
) -> None:
    """`meant`: it had asked the one before to end, and came no further."""
    (runtime.root / "deaf").touch()
    first = a_start()
    await runtime.start(first)
    await up(runtime, first.name)
    current = runtime.root / str(first.instance) / "current"
    current.write_text("1")
    second = a_start(first.instance, 2)
    if meant:
        assert not await runtime.start(second)
    process = process_of(runtime, first)

    async def given_up() -> bool:
        return await runtime.delete(second.name, grace=timedelta(0), keep_loaded=True)

    await until("it is given up", given_up)
    assert not alive(process)
    assert current.read_text() == "1"
    assert await runtime.list() == []
    assert not await late.start(second), "it was given up"
    (runtime.root / "deaf").unlink()
    third = a_start(first.instance, 3)
    assert await runtime.start(third)
    await up(runtime, third.name)
    await gone(runtime, third.name, timedelta(0))
    assert not current.parent.exists()


@pytest.mark.parametrize("loaded", [False, True], ids=["nothing loaded", "it ran"])
async def test_nothing_is_kept_of_a_start_that_ran_or_where_nothing_was_loaded(
    runtime: LocalRuntime, loaded: bool
) -> None:
    start = a_start()
    await runtime.start(start)
    await up(runtime, start.name)
    if loaded:
        (runtime.root / str(start.instance) / "current").write_text("1")
    name = start.name if loaded else f"ladybug-wrapper-{start.instance}-2"

    async def given_up() -> bool:
        return await runtime.delete(name, keep_loaded=True)

    await until("it is given up", given_up)
    assert not (runtime.root / str(start.instance)).exists()
