"""An instance inside the test's own process, for what no route offers: its children are real, HTTP is left out."""

import hashlib
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from paddock.graphs.asking import read_query
from paddock.graphs.instance import Instance
from paddock.graphs.plan import read_plan
from paddock.graphs.query import Query
from paddock.graphs.starting import Start
from tests.graphs.running import TOKEN, make_folder


def start_of(folder: Path, **more: Any) -> Start:
    generation = str(uuid.uuid4())
    make_folder(folder, generation)
    facts: dict[str, Any] = {
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
        **more,
    }
    return Start(**facts)


@asynccontextmanager
async def loaded(folder: Path, plan: Mapping[str, Any], **more: Any) -> AsyncIterator[Instance]:
    inside = Instance(start_of(folder, **more))
    try:
        inside.load(read_plan(orjson.dumps(plan)))
        await inside.settled()
        assert inside.phase == "ready", inside.status()["error"]
        yield inside
    finally:
        await inside.close(0)


def ask(inside: Instance, text: str, **more: Any) -> Query:
    return inside.queries.start(read_query(orjson.dumps({"query": text, **more}), ""))


async def rows(inside: Instance, text: str) -> list[list[Any]]:
    query, answer = ask(inside, text), b""
    while (piece := await query.piece()) is not None:
        answer += piece
    found: list[list[Any]] = orjson.loads(answer)["data"]["rows"]
    return found


def in_engine(wrapper_type: str, database: Path, *statements: str) -> None:
    """Runs statements on a database in a process of its own: a test that imports an engine can import no other."""
    script = (
        "import importlib, sys\n"
        "module = importlib.import_module(sys.argv[1])\n"
        "database = module.Database(sys.argv[2], buffer_pool_size=64 << 20, max_num_threads=1, max_db_size=1 << 36)\n"
        "connection = module.Connection(database)\n"
        "for statement in sys.argv[3:]:\n"
        "    connection.execute(statement)\n"
        "connection.close()\n"
        "database.close()\n"
    )
    subprocess.run([sys.executable, "-c", script, wrapper_type, str(database), *statements], check=True, timeout=60)
