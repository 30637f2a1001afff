"""A real instance process for tests: folder, start line, and the few requests that tests make of it."""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq

from paddock.child_processes.spawning import ChildProcess, import_path

TOKEN = "a-token-of-this-generation"
LIMIT_SECONDS = 60.0


class RunningInstance:
    def __init__(self, folder: Path, generation: str, process: ChildProcess, client: httpx2.AsyncClient) -> None:
        self.folder = folder
        self.generation = generation
        self.process = process
        self.client = client

    async def query(self, text: str, **more: Any) -> httpx2.Response:
        headers = {"Accept": more.pop("accept")} if "accept" in more else {}
        return await self.client.post("/query", json={"query": text, **more}, headers=headers)

    async def rows(self, text: str, **more: Any) -> list[list[Any]]:
        answer = await self.query(text, **more)
        assert answer.status_code == 200, answer.text
        rows: list[list[Any]] = answer.json()["data"]["rows"]
        return rows

    async def status(self) -> dict[str, Any]:
        answer = await self.client.get("/status")
        data: dict[str, Any] = answer.json()["data"]
        return data

    def children(self) -> list[int]:
        return children_of(self.process.pid)

    def crash(self, child: int) -> None:
        """As an engine does that follows a wrong pointer."""
        os.kill(child, signal.SIGSEGV)

    async def load(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Loads and waits until it is ready or failed."""
        answer = await self.client.post("/load", json=plan)
        assert answer.status_code == 202, answer.text
        return await self.settled()

    async def settled(self) -> dict[str, Any]:
        return await self.until(lambda status: status["phase"] in ("ready", "failed"))

    async def until(self, condition: Any) -> dict[str, Any]:
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                status = await self.status()
                if condition(status):
                    return status
                await asyncio.sleep(0.02)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


def make_folder(folder: Path, generation: str, name: str = "ladybug-wrapper-1") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lock").touch()
    (folder / "meant.json").write_text(json.dumps({"generation": generation, "name": name}))
    return folder


def start_process(folder: Path, generation: str, module: str = "paddock.graphs", **more: Any) -> ChildProcess:
    process = ChildProcess(
        [sys.executable, "-m", module], environment=import_path(), stdin=subprocess.PIPE, own_group=False
    )
    line = {
        "protocol": 1,
        "id": str(uuid.uuid4()),
        "generation": generation,
        "name": "ladybug-wrapper-1",
        "wrapper_type": "ladybug",
        "memory_bytes": 512 << 20,
        "cpu": 2,
        "disk_bytes": 1 << 30,
        "token_sha256": hashlib.sha256(TOKEN.encode()).hexdigest(),
        "folder": str(folder),
        "host": "127.0.0.1",
        "port": 0,
        "keeper_pid": None,
        "keeper_started": None,
        "landlock": "where_there",
        **more,
    }
    process.stdin.write(json.dumps(line).encode() + b"\n")
    process.stdin.flush()
    return process


async def wait_for_run(folder: Path, generation: str, process: ChildProcess) -> int:
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            assert process.alive, process.last_words
            if (folder / "run.json").exists():
                found = json.loads((folder / "run.json").read_text())
                if found["generation"] == generation and found["pid"] == process.pid:
                    return int(found["port"])
            await asyncio.sleep(0.02)


@asynccontextmanager
async def instance(folder: Path, **more: Any) -> AsyncIterator[RunningInstance]:
    """An empty one, or one that opens the database of its folder."""
    generation = str(uuid.uuid4())
    make_folder(folder, generation)
    process = start_process(folder, generation, **more)
    try:
        port = await wait_for_run(folder, generation, process)
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=LIMIT_SECONDS,
            limits=httpx2.Limits(max_connections=200),
        ) as client:
            yield RunningInstance(folder, generation, process, client)
    finally:
        await process.end()


def parquet(path: Path, table: pa.Table) -> dict[str, Any]:
    """A file of a plan."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    content = path.read_bytes()
    return {
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
        "rows": table.num_rows,
        "path": str(path),
    }


def nodes(
    folder: Path, label: str, key: tuple[str, str], properties: Sequence[tuple[str, str]], table: pa.Table
) -> dict[str, Any]:
    return {
        "label": label,
        "key": {"name": key[0], "type": key[1]},
        "properties": [{"name": name, "type": type} for name, type in properties],
        "rows": table.num_rows,
        "files": [parquet(folder / f"{label}.parquet", table)],
    }


def edges(
    folder: Path, type: str, ends: tuple[str, str], properties: Sequence[tuple[str, str]], table: pa.Table
) -> dict[str, Any]:
    return {
        "type": type,
        "from": ends[0],
        "to": ends[1],
        "properties": [{"name": name, "type": type} for name, type in properties],
        "rows": table.num_rows,
        "files": [parquet(folder / f"{type}.parquet", table)],
    }


def cities(folder: Path) -> dict[str, Any]:
    """Three cities, three roads between them and one that leads nowhere."""
    city = pa.table({"name": ["Bern", "Graz", "Lyon"], "people": pa.array([134, 292, 522], pa.int64())})
    road = pa.table(
        {
            "from": ["Bern", "Graz", "Lyon", "Bern"],
            "to": ["Graz", "Lyon", "Bern", "Atlantis"],
            "km": pa.array([700.5, 1100.0, 310.25, 1.0]),
        }
    )
    return {
        "nodes": [nodes(folder, "City", ("name", "STRING"), [("people", "INT64")], city)],
        "edges": [edges(folder, "ROAD", ("City", "City"), [("km", "DOUBLE")], road)],
    }


def started(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found.append(int(entry.name))
    return found


def most_resident_bytes(pid: int) -> int:
    """The most that the process ever held."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def is_gone(pid: int) -> bool:
    """A process that ended but was not reaped counts as gone: it runs nothing any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
