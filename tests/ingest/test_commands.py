"""A command runs in a folder and an environment of its own, and nothing that it started stays behind."""

import asyncio
import hashlib
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from paddock.ingest import launching
from paddock.ingest.launching import CommandEnd
from tests.playing import until


async def run(folder: Path, text: str, **settings: Any) -> tuple[CommandEnd, list[str]]:
    (folder / "command.py").write_text(text)
    said: list[str] = []
    asked: dict[str, Any] = {
        "environment": {"GIVEN": "yes"},
        "folder": folder,
        "timeout": timedelta(minutes=5),
        "memory": 1 << 30,
        "log": said.append,
    }
    ended = await launching.run([sys.executable, "-S", str(folder / "command.py")], **{**asked, **settings})
    return ended, said


async def test_it_sees_what_it_is_given_and_its_lines_are_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "hush")
    ended, said = await run(tmp_path, "import json, os\nprint(json.dumps(dict(os.environ)))\nraise SystemExit(7)")
    assert (ended.exit, ended.stopped) == (7, None)
    seen = json.loads(said[0])
    assert seen["GIVEN"] == "yes"
    assert "SECRET_OF_THE_WORKER" not in seen
    assert list(ended.last_lines) == said


async def test_whoever_leaves_its_parent_is_killed_with_the_rest(tmp_path: Path) -> None:
    text = """
import os, subprocess, sys
away = subprocess.Popen([sys.executable, "-S", "-c", "import os, time\\nos.setsid()\\nif os.fork(): os._exit(0)\\n"
    "open('pid', 'w').write(str(os.getpid()))\\ntime.sleep(600)"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
away.wait()
while not os.path.exists("pid") or not open("pid").read(): pass
"""
    ended, _ = await run(tmp_path, text)
    assert ended.exit == 0
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


async def test_one_that_takes_too_long_and_will_not_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "GRACE", timedelta(seconds=0.2))
    text = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('here', flush=True)\ntime.sleep(600)"
    )
    ended, _ = await run(tmp_path, text, timeout=timedelta(seconds=1))
    assert (ended.exit, ended.stopped) == (-9, "timeout")


async def test_a_cancelled_turn_ends_its_command(tmp_path: Path) -> None:
    task = asyncio.create_task(
        run(tmp_path, "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)")
    )
    await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


async def test_a_killed_worker_takes_its_commands_with_it(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(
        f"""
import asyncio, datetime, pathlib
from paddock.ingest import launching
asyncio.run(launching.run([{sys.executable!r}, "-S", "-c",
    "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"], environment={{}},
    folder=pathlib.Path({str(tmp_path)!r}), timeout=datetime.timedelta(hours=1), memory=1 << 30, log=print))
"""
    )
    worker = await asyncio.create_subprocess_exec(sys.executable, str(tmp_path / "worker.py"))
    await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    worker.kill()
    await worker.wait()
    await until(lambda: not psutil.pid_exists(int((tmp_path / "pid").read_text())))


async def test_a_command_that_is_not_there_says_so(tmp_path: Path) -> None:
    ended = await launching.run(
        ["/nonexistent/command"],
        environment={},
        folder=tmp_path,
        timeout=timedelta(minutes=1),
        memory=1 << 30,
        log=lambda line: None,
    )
    assert (ended.exit, ended.problem) == (None, "ENOENT")


async def test_a_file_cannot_grow_beyond_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "FILE_BYTES", 1000)
    ended, _ = await run(tmp_path, "with open('large', 'wb') as file: file.write(b'x' * 5000)")
    assert ended.exit != 0
    assert os.path.getsize(tmp_path / "large") <= 1000


async def test_lines_without_end_are_cut_and_memory_stays_bounded(tmp_path: Path) -> None:
    ended, said = await run(tmp_path, "import sys\nsys.stdout.write('x' * 1_000_000)")
    assert ended.exit == 0
    assert max(map(len, said)) <= launching.LONGEST_LINE


async def test_one_that_never_pauses_leaves_others_their_time(tmp_path: Path) -> None:
    text = """
import os, sys, time
end = time.monotonic() + 15
while not os.path.exists("enough"):
    if time.monotonic() > end:
        sys.exit(3)
    sys.stdout.write("y\\n" * 30_000)
"""
    heard: list[bytes] = []

    def log(line: str) -> None:
        """Takes its time, as a log does: the command is always ahead."""
        heard.append(hashlib.pbkdf2_hmac("sha256", line.encode(), b"salt", 50))

    running = asyncio.create_task(run(tmp_path, text, log=log))
    await until(lambda: bool(heard))
    (tmp_path / "enough").touch()
    ended, _ = await running
    assert ended.exit == 0


async def test_of_too_many_lines_some_are_logged_the_others_counted_and_the_last_kept(tmp_path: Path) -> None:
    ended, said = await run(tmp_path, "for n in range(100_000): print('line', n)")
    left_out = [int(line.split()[0].replace(",", "")) for line in said if line.endswith(" a second are kept.")]
    assert len(said) - len(left_out) + sum(left_out) == 100_000
    assert len(said) < 50_000
    assert list(ended.last_lines) == [f"line {n}" for n in range(99_980, 100_000)]


async def test_what_must_stay_hidden_is_neither_logged_nor_kept_with_a_failure(tmp_path: Path) -> None:
    text = "print('key=hush-hush', 'first line of it')\nprint('a of b')\nraise SystemExit(1)"
    ended, said = await run(tmp_path, text, hidden=["hush-hush", "first line of it\nsecond", "a"])
    assert said == ["key=*** ***", "a of b"]
    assert list(ended.last_lines) == said
