"""Ingest on one machine: the CPU of records on their way into Parquet, of a tap's messages into batches, the time of a small
batch from start to published, and the memory of a worker.

Records are of about 230 bytes. The ingester costs nothing (`cp` of a file that was made before), so what is measured is ours:
reading and checking its output, the store between the steps, and Parquet. The floor is a loop that parses the same lines with
orjson and writes the same columns with Arrow. `dlt` stands beside it where it is installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from bench.environment import Env
from bench.figures import Figure, at_least, at_most, missing, percentile, shown
from bench.paddock_processes import Serve, serving, working
from paddock.config import Config, load
from paddock.ingest import fetching, publishing
from paddock.ingest.launching import CommandEnd
from paddock.ingest.model import BatchPayload, Fetched, FetchPayload
from paddock.ingest.resources import IngestResources
from paddock.ingest.tapping import FileOfMessages, Tap
from paddock.ingest.trying import Printing
from paddock.jobs.model import AttemptId, JobId
from paddock.jobs.outcomes import Done
from paddock.jobs.turn import Turn

BATCH = 10_000
FLOOR_GOAL, DLT_GOAL, TAP_GOAL, LATENCY_GOAL_MS, MEMORY_GOAL_MIB = 4.0, 2.5, 2.5, 200, 150
# Records that pass leave nothing behind: what a heap breathes between two batches is less.
FLAT_MIB = 15
COLUMNS = ("stream", "id", "data", "features", "run_id", "batch", "position", "fetched_at")
COPY = 'cp "$BENCH_FILE" "$PADDOCK_OUT/records.jsonl"; echo "{\\"session\\": 1, \\"has_more\\": false}" > "$PADDOCK_OUT/session.json"'
NO_OP = (
    "import json, os\n"
    "with open(os.environ['PADDOCK_IN'] + '/records.jsonl') as lines, open(os.environ['PADDOCK_OUT'] + '/features.jsonl', 'w') as out:\n"
    "    for line in lines: out.write(json.dumps({'id': json.loads(line)['id'], 'features': {}}) + '\\n')\n"
)
TEN = (
    "import json, os\n"
    "out = os.environ['PADDOCK_OUT']\n"
    "with open(out + '/records.jsonl', 'w') as lines:\n"
    "    for n in range(10): lines.write(json.dumps({'id': n, 'data': {'n': n}}) + '\\n')\n"
    "with open(out + '/session.json', 'w') as file: json.dump({'session': None, 'has_more': False}, file)\n"
)


async def run(env: Env) -> list[Figure]:
    batches = 5 if env.quick else 100
    rounds = 1 if env.quick else 5
    with tempfile.TemporaryDirectory(prefix="bench-ingest-") as name:
        folder = Path(name)
        return [
            *await _records(env, folder, batches, rounds),
            *await _messages(env, folder, batches, rounds),
            *await _latency(env, folder, 5 if env.quick else 40),
            *await _memory(env, folder, 20 if env.quick else 500),
        ]


# Records into Parquet


async def _records(env: Env, folder: Path, batches: int, rounds: int) -> list[Figure]:
    lines = folder / "records.jsonl"
    with lines.open("wb") as file:
        file.writelines(_record(n) + b"\n" for n in range(BATCH))
    _floor(lines, folder / "floor.parquet", 1)  # the first one loads what Arrow needs
    ratios, ours, floors = [], [], []
    for number in range(rounds):
        floors.append(_cpu(lambda: _floor(lines, folder / "floor.parquet", batches)))
        began = _used()
        await _publish(folder, lines, batches)
        ours.append(_used() - began)
        ratios.append(ours[-1] / floors[-1])
        env.say(f"records, round {number + 1}: {ratios[-1]:.2f} x")
    note = f"{batches * BATCH:,} records of {lines.stat().st_size // BATCH} B, in batches of {BATCH:,}"
    return [
        at_most("records into Parquet: CPU / a bare orjson + pyarrow loop", ratios, FLOOR_GOAL, note=note),
        shown("records into Parquet: CPU", ours, "s"),
        _beside_dlt(env, lines, batches, statistics.median(ours)),
    ]


def _record(n: int) -> bytes:
    data = {
        "order": n,
        "customer": f"customer-{n * 7919 % 100_003}",
        "placed_at": f"2026-{n % 12 + 1:02}-{n % 28 + 1:02}T09:30:{n % 60:02}Z",
        "amount": f"{n % 99_999 / 100:.2f}",
        "lines": [{"sku": f"sku-{n % 997}", "n": n % 5 + 1}],
        "note": "delivered to the neighbour" if n % 3 else None,
    }
    return orjson.dumps({"id": f"order-{n}", "data": data})


def _floor(lines: Path, target: Path, times: int) -> None:
    for _ in range(times):
        _write(lines, target)


def _write(lines: Path, target: Path) -> None:
    """The same columns from the same lines, with nothing checked."""
    ids, data = [], []
    with lines.open("rb") as file:
        for line in file:
            record = orjson.loads(line)
            ids.append(record["id"])
            data.append(orjson.dumps(record["data"]).decode())
    n = len(ids)
    now = pa.scalar(0, pa.timestamp("us", "UTC"))
    columns = [
        pa.array([""] * n),
        pa.array(ids),
        pa.array(data),
        pa.array(["{}"] * n),
        pa.array(["run"] * n),
        pa.array([0] * n, pa.int32()),
        pa.array(range(n), pa.int32()),
        pa.array([now.as_py()] * n, pa.timestamp("us", "UTC")),
    ]
    pq.write_table(pa.table(columns, COLUMNS), target, compression="zstd")


async def _publish(folder: Path, lines: Path, batches: int) -> None:
    """The handlers of a worker, batch by batch, as its runner calls them."""
    os.environ["BENCH_FILE"] = str(lines)
    resources = _resources(folder, {"command": ["sh", "-c", COPY], "secrets": {"BENCH_FILE": {"env": "BENCH_FILE"}}})
    for n in range(batches):
        payload = FetchPayload(run_id=str(uuid4()), source="bench", batch=n, batch_size=BATCH)
        fetched = Fetched.model_validate(_done(await fetching.run(_turn(payload), resources)))
        [batch] = fetched.batches
        step = BatchPayload(
            run_id=payload.run_id,
            source="bench",
            batch=n,
            manifest=batch.manifest,
            sha256=batch.sha256,
            fetched_at=fetched.fetched_at,
        )
        _done(await publishing.run(_turn(step), resources))


def _beside_dlt(env: Env, lines: Path, batches: int, ours: float) -> Figure:
    """dlt's filesystem destination, if `BENCH_DLT` names the Python of an environment that has it."""
    python = os.environ.get("BENCH_DLT")
    name = "records into Parquet: dlt's CPU / ours"
    if python is None:
        return missing(name, "x", f">= {DLT_GOAL:g} x")
    with tempfile.TemporaryDirectory() as place:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([python, "-c", DLT, str(lines), str(batches), place], check=True, cwd=place)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return at_least(name, [seconds / ours], DLT_GOAL)


DLT = """
import sys, dlt, json
lines, batches, place = sys.argv[1], int(sys.argv[2]), sys.argv[3]
@dlt.resource(name="orders", max_table_nesting=0)
def orders():
    for n in range(batches):
        with open(lines) as file:
            yield [json.loads(line) for line in file]
pipeline = dlt.pipeline("bench", destination=dlt.destinations.filesystem(place + "/out"), dataset_name="bench", pipelines_dir=place)
pipeline.run(orders(), loader_file_format="parquet")
"""


# A tap's messages into batches


async def _messages(env: Env, folder: Path, batches: int, rounds: int) -> list[Figure]:
    path = folder / "messages.jsonl"
    with path.open("wb") as file:
        file.write(b'{"type":"SCHEMA","stream":"orders","schema":{},"key_properties":["order"]}\n')
        for n in range(BATCH):
            record = orjson.loads(_record(n))["data"]
            file.write(orjson.dumps({"type": "RECORD", "stream": "orders", "record": record}) + b"\n")
    ratios, ours = [], []
    for number in range(rounds):
        floor = _cpu(lambda: _parse(path, batches))
        began = _used()
        for n in range(batches):
            await _read_messages(folder, path, n)
        ours.append(_used() - began)
        ratios.append(ours[-1] / floor)
        env.say(f"messages, round {number + 1}: {ratios[-1]:.2f} x")
    return [
        at_most(
            "Singer messages into batches: CPU / a bare orjson loop",
            ratios,
            TAP_GOAL,
            note=f"{batches * BATCH:,} messages",
        ),
        shown("Singer messages into batches: CPU", ours, "s"),
    ]


def _parse(path: Path, times: int) -> None:
    for _ in range(times):
        with path.open("rb") as file:
            for line in file:
                orjson.loads(line)


async def _read_messages(folder: Path, path: Path, n: int) -> None:
    resources = _resources(folder, {"command": ["true"], "protocol": "singer"})
    payload = FetchPayload(run_id=str(uuid4()), source="bench", batch=n, batch_size=BATCH)
    tap = Tap(_turn(payload), resources, resources.source("bench"), uuid4().hex)
    with path.open("rb") as file:
        await tap.listen(FileOfMessages(file))
    _done(await tap.outcome(CommandEnd(0, None, None, None, []), None))


# A small batch, from start to published


async def _latency(env: Env, folder: Path, samples: int) -> list[Figure]:
    (folder / "ten.py").write_text(TEN)
    (folder / "no_op.py").write_text(NO_OP)
    python = [sys.executable, "-S"]
    settings = {
        "PADDOCK_INGEST_SOURCES": json.dumps(
            {"ten": {"command": [*python, str(folder / "ten.py")], "hooks": ["no-op"]}}
        ),
        "PADDOCK_INGEST_HOOKS": json.dumps({"no-op": {"command": [*python, str(folder / "no_op.py")]}}),
        "PADDOCK_OBJECT_STORE": str(folder / "objects"),
    }
    alone, ours = [], []
    async with _whole(env, "ingest_latency", settings) as (serve, _):
        for number in range(samples + 3):
            bare = await asyncio.to_thread(_alone, folder)
            began = time.perf_counter()
            run = await serve.ask("POST", "/api/ingest/runs", {"source": "ten", "from": "start"})
            await _until(serve, run["id"], lambda now: now["batches"] == {"published": 1})
            took = time.perf_counter() - began
            await _until(serve, run["id"], lambda now: now["status"] == "completed")
            if number >= 3:
                alone.append(bare * 1000)
                ours.append(took * 1000)
    more = percentile(ours, 0.5) - percentile(alone, 0.5)
    return [
        at_most(
            "a batch of 10 records with a hook: started to published, beyond the two commands alone",
            [more],
            LATENCY_GOAL_MS,
            "ms",
        ),
        shown("a batch of 10 records with a hook: started to published", [percentile(ours, 0.5)], "ms"),
        shown("its two commands one after the other", [percentile(alone, 0.5)], "ms"),
    ]


async def _until(serve: Serve, run: str, condition: Callable[[Any], bool]) -> None:
    while not condition(await serve.ask("GET", f"/api/ingest/runs/{run}")):  # noqa: ASYNC110  it is another process
        await asyncio.sleep(0.002)


def _alone(folder: Path) -> float:
    place = Path(tempfile.mkdtemp(dir=folder))
    for name in ("in", "out"):
        (place / name).mkdir()
    environment = {**os.environ, "PADDOCK_IN": str(place / "in"), "PADDOCK_OUT": str(place / "out")}
    began = time.perf_counter()
    subprocess.run([sys.executable, "-S", str(folder / "ten.py")], env=environment, check=True)
    (place / "out" / "records.jsonl").rename(place / "in" / "records.jsonl")
    subprocess.run([sys.executable, "-S", str(folder / "no_op.py")], env=environment, check=True)
    return time.perf_counter() - began


# Memory


async def _memory(env: Env, folder: Path, batches: int) -> list[Figure]:
    """A worker's processes over what they are when idle, while one batch after the other is fetched and published."""
    lines = folder / "records.jsonl"
    script = folder / "many.py"
    script.write_text(
        "import json, os, shutil\n"
        f"shutil.copyfile({str(lines)!r}, os.environ['PADDOCK_OUT'] + '/records.jsonl')\n"
        f"n = int(os.environ['PADDOCK_BATCH']) + 1\n"
        "with open(os.environ['PADDOCK_OUT'] + '/session.json', 'w') as file:\n"
        f"    json.dump({{'session': n, 'has_more': n < {batches}}}, file)\n"
    )
    source = {"command": [sys.executable, "-S", str(script)], "batch_size": BATCH}
    settings = {
        "PADDOCK_INGEST_SOURCES": json.dumps({"many": source}),
        "PADDOCK_OBJECT_STORE": str(folder / "objects"),
        "PADDOCK_KIND_CONCURRENCY": "publish_batch=1",
    }
    seen: list[float] = []
    async with _whole(env, "ingest_memory", settings) as (serve, worker):
        run = await serve.ask("POST", "/api/ingest/runs", {"source": "many", "from": "start", "limit": BATCH})
        await _ended(serve, run["id"], worker, [])
        idle = _rss(worker)
        run = await serve.ask("POST", "/api/ingest/runs", {"source": "many", "from": "start"})
        await _ended(serve, run["id"], worker, seen)
    over = [(rss - idle) / 2**20 for rss in seen]
    half = len(over) // 2
    growth = statistics.median(over[half:]) - statistics.median(over[:half] or [0.0])
    return [
        at_most("worker: RSS over idle", [max(over)], MEMORY_GOAL_MIB, "MiB", note=f"{batches * BATCH:,} records"),
        at_most("worker: RSS of the second half over the first", [growth], FLAT_MIB, "MiB"),
    ]


async def _ended(serve: Serve, run: str, worker: int, seen: list[float]) -> None:
    while (await serve.ask("GET", f"/api/ingest/runs/{run}"))["status"] not in ("completed", "failed"):
        seen.append(_rss(worker))
        await asyncio.sleep(0.1)


def _rss(worker: int) -> float:
    """Of the worker and its runners; a command of a source is not ours."""
    process = psutil.Process(worker)
    total = process.memory_info().rss
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "paddock.worker" in " ".join(child.cmdline()):
                total += child.memory_info().rss
    return float(total)


# What all have in common


@contextlib.asynccontextmanager
async def _whole(env: Env, name: str, settings: Mapping[str, str]) -> AsyncIterator[tuple[Serve, int]]:
    async with (
        env.database(name) as database,
        serving(database, **settings) as serve,
        working(serve, batch=10, in_flight=1, **settings) as worker,
    ):
        yield serve, worker


def _resources(folder: Path, source: Mapping[str, Any]) -> IngestResources:
    environ = {
        "PADDOCK_INGEST_SOURCES": json.dumps({"bench": source}),
        "PADDOCK_OBJECT_STORE": str(folder / "objects"),
        "PADDOCK_SCRATCH": str(folder / "scratch"),
    }
    config: Config = load(environ, folder)
    found = IngestResources(config)
    found.scratch = OPENED.setdefault(folder, found.scratch)
    return found


OPENED: dict[Path, Any] = {}


def _turn(payload: Any) -> Turn[Any]:
    id, attempt = JobId(uuid4()), AttemptId(uuid4())
    return Turn(id=id, attempt_id=attempt, kind="bench", payload=payload, saved=None, owner="bench", link=Printing())


def _done(outcome: object) -> Any:
    if not isinstance(outcome, Done):
        raise RuntimeError(f"the step did not end well: {outcome}")
    return outcome.result


def _used() -> float:
    """CPU of this process and of all that it started and reaped."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _cpu(work: Any) -> float:
    began = _used()
    work()
    return _used() - began
