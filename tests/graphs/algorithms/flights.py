"""A small graph with two labels, an isolated node, a loop, parallel edges and one edge that leads nowhere; and executions
on it over HTTP."""

import asyncio
import os
import shutil
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.graphs.running import LIMIT_SECONDS, RunningInstance, children_of, edges, instance, nodes, until

HELD = "tests.graphs.algorithms.held_server"

AIRPORTS = ["ZRH", "GRZ", "LYS", "OSL", "FAR"]
ROUTES = [
    ("ZRH", "GRZ"),
    ("GRZ", "ZRH"),
    ("ZRH", "LYS"),
    ("LYS", "ZRH"),
    ("OSL", "ZRH"),
    ("OSL", "ZRH"),
    ("GRZ", "GRZ"),
]
FLIES = [(7, "ZRH"), (7, "OSL"), (8, "LYS")]


def plan(folder: Path) -> dict[str, Any]:
    airports = pa.table({"code": AIRPORTS, "city": [name.title() for name in AIRPORTS]})
    airlines = pa.table({"number": pa.array([7, 8], pa.int64())})
    dangling = [*ROUTES, ("ZRH", "Atlantis")]
    routes = pa.table(
        {
            "from": [source for source, _ in dangling],
            "to": [target for _, target in dangling],
            "km": pa.array([float(place + 1) for place in range(len(dangling))]),
            "late": pa.array([None, *[0.5] * len(ROUTES)]),
            "delta": pa.array([-1.0, *[0.5] * len(ROUTES)]),
            "note": [""] * len(dangling),
        }
    )
    flies = pa.table({"from": pa.array([one for one, _ in FLIES], pa.int64()), "to": [other for _, other in FLIES]})
    properties = [("km", "DOUBLE"), ("late", "DOUBLE"), ("delta", "DOUBLE"), ("note", "STRING")]
    return {
        "nodes": [
            nodes(folder, "Airport", ("code", "STRING"), [("city", "STRING")], airports),
            nodes(folder, "Airline", ("number", "INT64"), [], airlines),
        ],
        "edges": [
            edges(folder, "ROUTE", ("Airport", "Airport"), properties, routes),
            edges(folder, "FLIES", ("Airline", "Airport"), [], flies),
        ],
    }


async def load(folder: Path, wrapper_type: str = "ladybug") -> Path:
    """The folder of an instance that has loaded it, for others to begin from."""
    async with instance(folder / "instance", wrapper_type=wrapper_type) as running:
        status = await running.load(plan(folder / "store"))
        assert status["phase"] == "ready", status["error"]
    return folder / "instance"


@asynccontextmanager
async def reopened(folder: Path, **more: Any) -> AsyncIterator["Flights"]:
    async with instance(folder, **more) as running:
        status = await running.settled()
        assert status["phase"] == "ready", status["error"]
        yield Flights(running)


@asynccontextmanager
async def copied(loaded: Path, folder: Path, **more: Any) -> AsyncIterator["Flights"]:
    shutil.copytree(loaded, folder, ignore=shutil.ignore_patterns("run.json"))
    async with reopened(folder, **more) as flights:
        yield flights


class Flights:
    def __init__(self, running: RunningInstance) -> None:
        self.running = running
        self.rows = running.rows
        self.hold_file = running.folder / "hold"

    async def post(self, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
        answer = await self.running.client.post(path, json=body)
        return answer.status_code, answer.json()

    async def start(self, name: str, **body: Any) -> str:
        status, answer = await self.post(f"/algo/{name}", **{"execution_id": str(uuid.uuid4()), **body})
        assert status == 202, answer
        return str(answer["data"]["execution_id"])

    async def execution(self, id: str) -> dict[str, Any]:
        answer = await self.running.client.get(f"/algo/executions/{id}")
        data: dict[str, Any] = answer.json()["data"]
        return data

    async def ended(self, id: str) -> dict[str, Any]:
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                found = await self.execution(id)
                if found["status"] != "running":
                    return found
                await asyncio.sleep(0.02)

    async def run(self, name: str, **body: Any) -> dict[str, Any]:
        found = await self.ended(await self.start(name, **body))
        assert found["status"] == "completed", found["error"]
        result: dict[str, Any] = found["result"]
        return result

    async def held_child(self) -> int:
        """The child that has stopped itself."""
        stopped: list[int] = []

        def is_there() -> bool:
            stopped[:] = [pid for pid in children_of(self.running.process.pid) if _is_stopped(pid)]
            return bool(stopped)

        await until(is_there)
        return stopped[0]

    async def properties(self, label: str) -> list[str]:
        schema = (await self.running.client.get("/schema")).json()["data"]
        [table] = [node for node in schema["nodes"] if node["label"] == label]
        return [declared["name"] for declared in table["properties"]]

    def left_behind(self) -> list[str]:
        """What an execution leaves in the folder besides the one database."""
        databases = sorted(os.listdir(self.running.folder / "db"))
        return [*databases[1:], *(["algorithm"] if (self.running.folder / "algorithm").exists() else [])]


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False
