"""What has a name is found by it, or by its id, and by nobody who may not see it."""

from datetime import timedelta
from typing import Any

import httpx2

from paddock.api import finding
from paddock.api.finding import Found, Sought
from paddock.exports import plain
from paddock.exports.plain import NewExport
from paddock.jobs import schedules
from paddock.jobs.core import Core
from paddock.jobs.schedules import NewSchedule
from tests.snapshots.making import claim, make_mapping, make_snapshot


async def found(client: httpx2.AsyncClient, text: str, **asked: Any) -> list[tuple[str, str]]:
    answer = await client.get("/api/search", params={"q": text, **asked})
    assert answer.status_code == 200, answer.text
    return [(one["what"], one["name"] or one["id"]) for one in answer.json()["data"]]


async def test_by_a_part_of_its_name_what_is_called_just_so_first(
    core: Core, ada: httpx2.AsyncClient, grace: httpx2.AsyncClient
) -> None:
    mapping = await make_mapping(core, name="Routes")
    await make_snapshot(core, mapping, name="Old routes")
    nightly = NewSchedule(name="routes-nightly", kind="plain", owner="grace", every=timedelta(days=1))
    await schedules.create(core, nightly, actor="grace")
    assert await found(ada, "routes") == [("mapping", "Routes"), ("snapshot", "Old routes")]
    assert await found(ada, "wareh") == [("engine", "warehouse")]
    assert await found(ada, "nothing of the kind") == []
    assert await found(grace, "routes-") == [("schedule", "routes-nightly")]
    assert await found(grace, "old r") == [("snapshot", "Old routes")]


async def test_by_its_id_or_the_beginning_of_it(core: Core, ada: httpx2.AsyncClient) -> None:
    snapshot = await make_snapshot(core)
    request = {"engine": "local", "sql": "SELECT 1"}
    new = NewExport(owner="ada", role=None, payload=request, request=request, ttl=None)
    export = await plain.create(core, new)
    for text in (str(export.id), str(export.id)[:18].upper()):
        assert ("export", str(export.id)) in await found(ada, text)
    assert await found(ada, str(snapshot.mapping_id)) == [("mapping", "air")]
    [one] = (await ada.get("/api/search", params={"q": str(export.id), "exactly": True})).json()["data"]
    assert (one["job_id"], one["path"]) == (str(export.job_id), f"/exports/{export.id}")


async def test_of_a_snapshot_the_job_of_a_part_that_failed_tells_most(core: Core, ada: httpx2.AsyncClient) -> None:
    snapshot = await make_snapshot(core, name="Monday")
    attempts = list((await claim(core)).values())
    await attempts[1].finish("permanent")
    [one] = (await ada.get("/api/search", params={"q": "monday", "exactly": True})).json()["data"]
    assert (one["id"], one["job_id"]) == (str(snapshot.id), str(attempts[1].job.id))
    assert await found(ada, "mon", exactly=True) == []


async def test_others_find_nothing(core: Core, bob: httpx2.AsyncClient) -> None:
    snapshot = await make_snapshot(core)
    for text in ("air", "air v1", str(snapshot.id), str(snapshot.mapping_id)):
        assert await found(bob, text) == [], text
        assert await found(bob, text, exactly=True) == [], text


async def test_a_name_of_wildcards_and_quotes_is_only_text(core: Core, ada: httpx2.AsyncClient) -> None:
    await make_snapshot(core, name="100%_'done'")
    assert await found(ada, "%_'d") == [("snapshot", "100%_'done'")]
    assert await found(ada, "%") == [("snapshot", "100%_'done'")]
    assert await found(ada, "a%b") == []


def test_names_are_compared_without_case() -> None:
    assert Sought("ROUTES", 5).fits("old routes")
    assert not Sought("ROUTES", 5, exactly=True).fits("old routes")
    assert finding.configured("engine", ["b", "Ab", "c"], "/engines/{}", Sought("B", 1)) == [
        Found("engine", "Ab", "Ab", "/engines/Ab")
    ]
