"""A large export from a real Trino takes no more memory than a small one."""

import statistics
from collections.abc import Sequence
from pathlib import Path

import psutil
import pyarrow.compute as pc
import pytest

from paddock.jobs.model import Job
from tests.trino.export_scene import runners_of, trino_scene, until
from tests.trino.server import TrinoServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LARGE, HUGE = 2_500_000, 10_000_000


def runner_memory() -> int:
    """Of the one runner that this test's worker has."""
    [runner] = runners_of(psutil.Process())
    return int(runner.memory_info().rss)


@pytest.mark.parametrize("wanted", [LARGE, pytest.param(HUGE, marks=pytest.mark.long)])
async def test_millions_of_rows_in_the_memory_of_one(wanted: int, trino: TrinoServer, tmp_path: Path, dsn: str) -> None:
    sql = f"SELECT orderkey, linenumber, quantity, shipdate FROM tpch.sf10.lineitem LIMIT {wanted}"
    seen: list[tuple[int, int]] = []
    async with trino_scene(trino, tmp_path, dsn) as scene, scene.working():
        export = await scene.ask(sql)

        async def look() -> Job | None:
            job = await scene.job(export.job_id)
            seen.append((int((job.report or {}).get("rows") or 0), runner_memory()))
            return job if job.ended else None

        job = await until("all rows are exported", look, 400)
        assert job.status == "completed", job.error_message
        seen.append((wanted, runner_memory()))
        done = await scene.look(export)
        rows = await scene.rows(done)

    assert done.rows == rows.num_rows == wanted
    keys = pc.add(pc.multiply(rows["orderkey"], 8), pc.cast(rows["linenumber"], "int64"))
    assert pc.count_distinct(keys).as_py() == wanted
    early, late = middle(seen, 0.1 * wanted, 0.25 * wanted), middle(seen, 0.9 * wanted, wanted)
    course = [(rows, memory >> 20) for rows, memory in seen[:: len(seen) // 50 + 1]]
    # Allocators go up and down by a third; rows that piled up would make it several times as much.
    assert late <= 1.6 * early, course


def middle(seen: Sequence[tuple[int, int]], begin: float, end: float) -> float:
    """What the runner had while this part of the rows was being written: a moment's peak says nothing."""
    return statistics.median(memory for rows, memory in seen if begin <= rows <= end)
