"""What each process of an execution loads, and what it does when its memory is not enough."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.graphs.algorithms import scratch
from paddock.graphs.algorithms.executions import MODULE
from paddock.graphs.algorithms.table import ALGORITHMS
from paddock.graphs.spawning import ChildFailed, Family

HEAVY = {"numpy", "scipy", "networkit", "pyarrow", "ladybug", "ryugraph"}


def loaded_by(*modules: str) -> set[str]:
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return HEAVY & set(done.stdout.split())


def test_the_server_loads_nothing_heavy() -> None:
    assert loaded_by("paddock.graphs.serving") == set()


def test_what_computes_loads_no_graph_engine() -> None:
    functions = {(entry.function or "").partition(":")[0] for entry in ALGORITHMS.values()} - {""}
    assert loaded_by("paddock.graphs.algorithms.computing", *functions) == {"numpy", "scipy", "networkit"}


def request(folder: Path, nodes: int, edges: int, memory_bytes: int) -> dict[str, Any]:
    (folder / scratch.LABELS).write_text(f'{{"N": {nodes}}}')
    chance = np.random.default_rng(1)
    for name in (scratch.SOURCE, scratch.TARGET):
        np.save(folder / name, chance.integers(0, nodes, edges))
    parameters = {one.name: one.default for one in ALGORITHMS["pagerank"].parameters}
    return {
        "step": "computing",
        "task": {"algorithm": "pagerank", "parameters": parameters, "type": "DOUBLE"},
        "scratch": str(folder),
        "landlock": True,
        "threads": 1,
        "memory_bytes": memory_bytes,
        "disk_bytes": 1 << 30,
    }


async def test_too_little_memory_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ChildFailed) as failed:
        await Family().run(MODULE, request(tmp_path, 1000, 3_000_000, 16 << 20), lambda facts: None)
    assert failed.value.facts["code"] == "algorithm_out_of_memory"
    assert not (tmp_path / scratch.VALUES).exists()


async def test_progress_is_told_while_it_computes(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    result = await Family().run(MODULE, request(tmp_path, 100, 1000, 64 << 20), told.append)
    assert result == {"nodes": 100, "edges": 1000}
    assert all(0 < facts["done"] <= 1 for facts in told)
    assert len(told) > 1
