"""Whatever the key's type, the engine and the number of labels: a value reaches the node that it belongs to."""

import uuid
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paddock.graphs.instance import Instance
from tests.graphs.inside import loaded, rows
from tests.graphs.running import edges, nodes, until

SIZE = 40
KEYS: dict[str, tuple[str, pa.Array]] = {
    "Number": ("INT64", pa.array([place * 7 - 100 for place in range(SIZE)], pa.int64())),
    "Word": ("STRING", pa.array([f"w'\\`{place}é" for place in range(SIZE)])),
    "Day": ("DATE", pa.array([date(1, 1, 1) + timedelta(days=9 * place) for place in range(SIZE)])),
    "Thing": (
        "UUID",
        pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([uuid.UUID(int=(place * 7 + 1) << 119).bytes for place in range(SIZE)], pa.binary(16))
        ),
    ),
}
LABELS = list(KEYS)


def ring(folder: Path, *, empty: bool = False) -> dict[str, Any]:
    """Node k of each label leads to k edges of the next label's node k; the last label leads to the first."""
    made_nodes, made_edges = [], []
    for place, (label, (type, every)) in enumerate(KEYS.items()):
        keys = every[:0] if empty else every
        made_nodes.append(nodes(folder, label, ("key", type), [], pa.table({"key": keys})))
        following = LABELS[(place + 1) % len(LABELS)]
        times = pa.array(np.repeat(np.arange(len(keys)), np.arange(len(keys))))
        ends = pa.table({"from": keys.take(times), "to": KEYS[following][1].take(times)})
        made_edges.append(edges(folder, f"TO_{following}".upper(), (label, following), [], ends))
    return {"nodes": made_nodes, "edges": made_edges}


async def run(inside: Instance, name: str, **body: Any) -> dict[str, Any]:
    id = str(uuid.uuid4())
    execution = inside.executions.start(name, id, None, body)
    await until(lambda: execution.status != "running")
    assert execution.status == "completed", execution.error
    assert execution.result is not None
    return execution.result


@pytest.mark.slow
@pytest.mark.parametrize("wrapper_type", ["ladybug", "ryugraph"])
async def test_each_node_gets_its_own_value(tmp_path: Path, wrapper_type: str) -> None:
    async with loaded(tmp_path / "instance", ring(tmp_path / "store"), wrapper_type=wrapper_type) as inside:
        result = await run(inside, "degree", direction="outgoing")

        assert result["nodes"] == 4 * SIZE
        for label, (_type, keys) in KEYS.items():
            found = await rows(inside, f"MATCH (n:{label}) RETURN offset(id(n)), n.degree ORDER BY offset(id(n))")
            assert found == [[place, place] for place in range(SIZE)]
            [largest] = [one for one in result["largest"] if one["label"] == label and one["value"] == SIZE - 1]
            last = keys[SIZE - 1].as_py()
            assert largest["key"] == (last if isinstance(last, int) else str(last))


@pytest.mark.slow
@pytest.mark.parametrize("wrapper_type", ["ladybug", "ryugraph"])
async def test_a_graph_without_nodes_gets_the_property(tmp_path: Path, wrapper_type: str) -> None:
    plan = ring(tmp_path / "store", empty=True)
    async with loaded(tmp_path / "instance", plan, wrapper_type=wrapper_type) as inside:
        result = await run(inside, "pagerank")
        assert (result["nodes"], result["edges"], result["largest"]) == (0, 0, [])
        assert await rows(inside, "MATCH (n) RETURN count(n.pagerank)") == [[0]]
