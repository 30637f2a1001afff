"""The kernel's part of the sandbox on its own, without an engine's settings in front of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from paddock.engines.children import landlock
from paddock.engines.children.sandbox import readable

pytestmark = pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")

CONFINED = """
import os, resource, socket, subprocess, sys
from pathlib import Path
from paddock.child_processes.beginning import limit
from paddock.engines.children import sandbox
root, spill = Path(sys.argv[1]), Path(sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
sandbox.forget_environment()
limit(256 << 20, 1 << 20)
assert sandbox.confine([root], [root / "hidden"], [], spill)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("root", "root/sub", "root/hidden", "spill", "outside"):
        (tmp_path / name).mkdir()
    for name in ("root/a.txt", "root/sub/b.txt", "root/hidden/c.txt", "outside/d.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside" / "d.txt")
    return tmp_path


def confined(place: Path, then: str) -> str:
    """What a confined process prints, or the name of what it died of."""
    script = f"{CONFINED}\ntry:\n    print({then})\nexcept BaseException as problem:\n    print(type(problem).__name__)"
    arguments = [sys.executable, "-c", script, str(place / "root"), str(place / "spill")]
    return subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


@pytest.mark.parametrize(
    ("then", "found"),
    [
        ("(root / 'a.txt').read_text()", "root/a.txt"),
        ("(root / 'sub' / 'b.txt').read_text()", "root/sub/b.txt"),
        ("(spill / 'mine').write_text('ten bytes.')", "10"),
        ("sorted(os.listdir(root))", "['a.txt', 'hidden', 'link', 'sub']"),
        ("(root / 'hidden' / 'c.txt').read_text()", "PermissionError"),
        ("(root / 'link').read_text()", "PermissionError"),
        ("(root / '..' / 'outside' / 'd.txt').read_text()", "PermissionError"),
        ("Path('/etc/passwd').read_text()", "PermissionError"),
        ("Path('/proc/self/environ').read_bytes()", "PermissionError"),
        ("os.listdir('/')", "PermissionError"),
        ("(root / 'new').write_text('x')", "PermissionError"),
        ("(root / 'a.txt').write_text('x')", "PermissionError"),
        ("(root / 'a.txt').unlink()", "PermissionError"),
        ("os.truncate(root / 'a.txt', 0)", "PermissionError"),
        ("(root / 'a.txt').rename(spill / 'a.txt')", "PermissionError"),
        ("os.link(root / 'a.txt', spill / 'a.txt')", "OSError"),
        ("os.symlink('/etc/passwd', spill / 'l')", "PermissionError"),
        ("os.mkfifo(spill / 'f')", "PermissionError"),
        ("Path('/dev/shm/paddock-x').write_text('x')", "PermissionError"),
        ("subprocess.run(['/bin/true'])", "PermissionError"),
        ("socket.create_connection(listener.getsockname())", "PermissionError"),
        ("socket.create_server(('127.0.0.1', 0))", "PermissionError"),
        ("len(bytearray(1 << 30))", "MemoryError"),
        ("(spill / 'large').write_bytes(bytes(2 << 20))", "OSError"),
        ("resource.getrlimit(resource.RLIMIT_CORE)", "(0, 0)"),
        ("dict(os.environ)", "{}"),
    ],
)
def test_what_a_confined_process_can_do(place: Path, then: str, found: str) -> None:
    assert confined(place, then) == found
    assert (place / "root" / "a.txt").read_text() == "root/a.txt"


def test_a_rule_goes_around_what_is_hidden(place: Path) -> None:
    root = place / "root"
    assert list(readable(root, [])) == [root]
    assert list(readable(root, [place / "outside"])) == [root]
    assert sorted(readable(root, [root / "hidden"])) == [root / "a.txt", root / "sub"]
    assert list(readable(root, [root])) == []
    assert list(readable(root / "hidden", [root])) == []
