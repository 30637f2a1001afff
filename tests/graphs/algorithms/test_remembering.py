"""What the server knows of executions: bounded, and never stuck."""

import uuid
from pathlib import Path

import pytest

from paddock.graphs.algorithms.executions import REMEMBERED, Executions
from paddock.graphs.databases import Current
from paddock.graphs.instance import Instance
from paddock.graphs.problems import Problem
from tests.graphs.algorithms.test_requests import DEFINITIONS
from tests.graphs.inside import start_of


class Ready(Instance):
    """An instance whose database nobody opens: these executions end before they get there."""

    def require_ready(self) -> Current:
        return Current(1, {}, {}, DEFINITIONS)


@pytest.fixture
def executions(tmp_path: Path) -> Executions:
    return Ready(start_of(tmp_path / "one")).executions


def new_id() -> str:
    return str(uuid.uuid4())


async def test_one_that_is_cancelled_before_its_first_line_runs_holds_nothing(executions: Executions) -> None:
    first = executions.start("degree", new_id(), None, {})
    assert (await executions.cancel(first.id)).status == "cancelled"
    assert executions.running is None
    second = executions.start("degree", new_id(), None, {})
    await executions.close()
    assert second.status == "cancelled"


async def test_a_second_one_is_refused_and_names_the_first(executions: Executions) -> None:
    executions.start("louvain", new_id(), "ann", {})
    with pytest.raises(Problem, match="Louvain communities of ann runs here since") as refused:
        executions.start("degree", new_id(), "bob", {})
    assert (refused.value.status, refused.value.code) == (409, "RESOURCE_LOCKED")
    await executions.close()


async def test_only_the_last_are_remembered_and_the_running_one(executions: Executions) -> None:
    running = executions.start("degree", new_id(), None, {})
    for _ in range(2 * REMEMBERED):
        await executions.cancel(new_id())
    assert len(executions.list()) == REMEMBERED
    assert executions.find(running.id) is running
    with pytest.raises(Problem) as unknown:
        executions.find(new_id())
    assert (unknown.value.status, unknown.value.code) == (404, "execution_unknown")
    await executions.close()
