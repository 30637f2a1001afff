"""A load that cannot end well says why, in a sentence for whoever wrote the mapping."""

import hashlib
import os
import signal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from paddock.child_processes.spawning import ChildProcess
from paddock.graphs.instance import Instance
from paddock.graphs.plan import read_plan
from paddock.graphs.problems import Problem
from paddock.graphs.spawning import Family
from tests.graphs.inside import rows, start_of
from tests.graphs.running import cities, edges, nodes

Plan = dict[str, Any]


def with_city_file(store: Path, plan: Plan, names: list[str | None], people: pa.Array | None = None) -> None:
    column = pa.array([1] * len(names), pa.int64()) if people is None else people
    table = pa.table({"name": pa.array(names, pa.string()), "people": column})
    plan["nodes"][0] = nodes(store / "other", "City", ("name", "STRING"), [("people", "INT64")], table)


def twice(store: Path, plan: Plan) -> None:
    with_city_file(store, plan, ["Bern", "Graz", "Lyon", "Bern"])


def null(store: Path, plan: Plan) -> None:
    with_city_file(store, plan, ["Bern", None])


def not_a_number(store: Path, plan: Plan) -> None:
    with_city_file(store, plan, ["Bern", "Graz"], pa.array(["134", "many"]))


def gone(store: Path, plan: Plan) -> None:
    Path(plan["edges"][0]["files"][0]["path"]).unlink()


def changed(store: Path, plan: Plan) -> None:
    plan["nodes"][0]["files"][0]["sha256"] = "0" * 64


def no_parquet(store: Path, plan: Plan) -> None:
    path = Path(plan["edges"][0]["files"][0]["path"])
    path.write_bytes(b"PAR1 and then something else PAR1")
    plan["edges"][0]["files"][0]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()


def reserved(store: Path, plan: Plan) -> None:
    plan["nodes"][0]["properties"][0]["name"] = "_id"


def too_few(store: Path, plan: Plan) -> None:
    plan["nodes"][0]["rows"] = 4


def too_many_edges(store: Path, plan: Plan) -> None:
    plan["edges"][0]["rows"] = 2


@pytest.mark.parametrize("wrapper_type", ["ladybug", "ryugraph"])
@pytest.mark.parametrize(
    ("spoil", "cause", "says"),
    [
        (twice, "key_duplicate", "City: the key 'Bern' comes twice."),
        (null, "key_null", "City: a key is NULL."),
        (not_a_number, "value_does_not_fit", "City: a value cannot be loaded"),
        (no_parquet, "value_does_not_fit", "ROAD: a value cannot be loaded"),
        (gone, "file_missing", "ROAD: a file of the snapshot is gone."),
        (changed, "file_changed", "City: a file of the snapshot is not the one that was written."),
        (reserved, "ddl_refused", "City: The graph engine refused the table"),
        (too_few, "counts_differ", "City: the snapshot has 4 rows, the graph has 3."),
        (too_many_edges, "counts_differ", "ROAD: the snapshot has 2 rows, the graph has 3."),
    ],
)
async def test_the_cause_of_a_failed_load_is_named(
    tmp_path: Path, wrapper_type: str, spoil: Any, cause: str, says: str
) -> None:
    store = tmp_path / "store"
    plan = cities(store)
    spoil(store, plan)
    inside = Instance(start_of(tmp_path / "instance", wrapper_type=wrapper_type))
    try:
        inside.load(read_plan(orjson.dumps(plan)))
        await inside.settled()

        status = inside.status()
        assert (status["phase"], status["error"]["cause"]) == ("failed", cause), status["error"]
        assert status["error"]["message"].startswith(says), status["error"]
        assert inside.databases.current() is None
        assert not inside.databases.files.exists()
        assert list((tmp_path / "instance").glob("db/*")) == []
        with pytest.raises(Problem, match="failed"):
            inside.require_ready()
    finally:
        await inside.close(0)


@pytest.mark.parametrize(("number", "cause"), [(signal.SIGSEGV, "loader_died"), (signal.SIGKILL, "out_of_memory")])
async def test_a_loader_that_dies_fails_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, cause: str
) -> None:
    start = Family.start

    def dying(family: Family, module: str, arguments: Any, fds: Any) -> ChildProcess:
        child = start(family, module, arguments, fds)
        os.kill(child.pid, signal.SIGSTOP)  # it gets no further than this
        os.kill(child.pid, number)
        os.kill(child.pid, signal.SIGCONT)
        return child

    monkeypatch.setattr(Family, "start", dying)
    inside = Instance(start_of(tmp_path / "instance"))
    try:
        inside.load(read_plan(orjson.dumps(cities(tmp_path / "store"))))
        await inside.settled()
        assert inside.error is not None
        assert inside.error.cause == cause
    finally:
        await inside.close(0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": [], "edges": [{}]},
        {"nodes": "none", "edges": []},
        {"edges": []},
    ],
)
def test_a_plan_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(Problem) as refused:
        read_plan(orjson.dumps(wrong))
    assert refused.value.status == 422


def test_what_the_engines_would_crash_on_is_refused(tmp_path: Path) -> None:
    for type in ("LIST(DECIMAL(5,2))", "MAP(STRING, STRUCT(a DECIMAL(5,2)))", "NOTHING"):
        plan = cities(tmp_path)
        plan["nodes"][0]["properties"][0]["type"] = type
        with pytest.raises(Problem, match="people"):
            read_plan(orjson.dumps(plan))
    for name in ("a`b", "", "a\x00"):
        plan = cities(tmp_path)
        plan["nodes"][0]["properties"][0]["name"] = name
        with pytest.raises(Problem, match="name"):
            read_plan(orjson.dumps(plan))


async def test_empty_tables_reserved_words_and_several_files_load(tmp_path: Path) -> None:
    store = tmp_path / "store"
    plan = cities(store)
    nobody = pa.table({"id": pa.array([], pa.int64()), "order": pa.array([], pa.string())})
    loose = pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())})
    plan["nodes"].append(nodes(store, "Match", ("id", "INT64"), [("order", "STRING")], nobody))
    plan["edges"].append(edges(store, "RETURN", ("Match", "City"), [], loose))
    plan["edges"].append({**edges(store, "WHERE", ("City", "Match"), [], loose), "files": []})
    more = pa.table({"name": ["Oslo"], "people": pa.array([709], pa.int64())})
    second = nodes(store / "second", "City", ("name", "STRING"), [("people", "INT64")], more)["files"][0]
    plan["nodes"][0]["files"].append(second)
    plan["nodes"][0]["rows"] = 4
    inside = Instance(start_of(tmp_path / "instance"))
    try:
        inside.load(read_plan(orjson.dumps(plan)))
        await inside.settled()
        assert inside.error is None, inside.error
        assert await rows(inside, "MATCH (c:City) RETURN count(*)") == [[4]]
        assert await rows(inside, "MATCH (m:`Match`)-[r:`RETURN`]->() RETURN m.`order`, r") == []
    finally:
        await inside.close(0)
