"""Requests that mean no good: each is answered with a sentence, none with a 500."""

from typing import Any
from uuid import UUID

import httpx2
import pytest

from paddock.jobs.core import Core
from paddock.jobs.filtering import Filter
from paddock.jobs.model import JobId
from tests.api.conftest import Clients
from tests.conftest import DatabaseClock
from tests.exports.attacks.making import ask, asked
from tests.upkeep.test_bulk import Line, turn


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"ttl": "999999999d"}, "ttl"),
        ({"ttl": "P0D"}, "ttl"),
        ({"destination": "LAKE:x"}, "destination"),
        ({"destination": "lake:" + "/".join(["x" * 100] * 5)}, "destination"),
        ({"destination": "lake:x/{week}"}, "destination"),
        ({"destination": "lake:x/../y"}, "destination"),
        ({"destination": "lake:_x"}, "destination"),
        ({"max_rows": 2**63}, "max_rows"),
        ({"max_bytes": 2**63}, "max_bytes"),
    ],
)
async def test_what_no_export_can_be_is_said_in_one_sentence(
    ada: httpx2.AsyncClient, body: dict[str, Any], field: str
) -> None:
    answer = await ask(ada, **body)

    error = answer.json()["error"]
    assert (answer.status_code, [found["field"] for found in error["details"]["fields"]]) == (422, [field])
    assert "\n" not in error["message"]
    assert "pydantic" not in error["message"]


async def test_a_list_of_long_queries_is_a_short_answer(core: Core, ada: httpx2.AsyncClient) -> None:
    long = f"SELECT '{'x' * 190_000}' AS a"
    made = await asked(ada, sql=long, parameters={"p": "y" * 50_000})

    [listed] = (await ada.get("/api/exports")).json()["data"]

    assert listed["request"]["sql"] == long[:1_000] + "…"
    assert len(str(listed)) < 5_000
    assert (await ada.get(f"/api/exports/{made['id']}")).json()["data"]["request"]["sql"] == long


@pytest.mark.parametrize(
    ("grants", "code"),
    [
        ({"engines": ["warehouse"], "destinations": ["lake"]}, "engine_not_allowed"),
        ({"engines": ["local"]}, "destination_not_allowed"),
        ({"engines": ["local"], "destinations": ["lake"]}, None),
    ],
)
async def test_a_retry_needs_the_engine_and_the_destination_again(
    core: Core, clients: Clients, grants: dict[str, Any], code: str | None
) -> None:
    """Another token of the same owner, or the same after something was taken from it."""
    made = await asked(await clients("ada"), destination="lake:x")
    await core.cancel([JobId(UUID(made["job_id"]))], actor="ada")
    await clients.token("ada", "analyst", **grants)
    clients.opened.pop("ada")

    answer = await (await clients("ada")).post(f"/api/jobs/{made['job_id']}/retry")

    assert answer.json().get("error", {}).get("code") == code


@pytest.mark.parametrize(
    ("grants", "refused"),
    [
        ({"engines": ["warehouse"], "destinations": ["lake"]}, {"engine_not_allowed": 1}),
        ({"engines": ["local"], "destinations": []}, {"destination_not_allowed": 1}),
        ({"engines": ["local"], "destinations": ["lake"]}, {}),
        ({"engines": None, "destinations": None}, {}),
    ],
)
async def test_a_retry_in_bulk_needs_them_too(
    core: Core, ada: httpx2.AsyncClient, clock: DatabaseClock, grants: dict[str, Any], refused: dict[str, int]
) -> None:
    made = await asked(ada, destination="lake:x")
    await core.cancel([JobId(UUID(made["job_id"]))], actor="ada")
    await clock.advance(seconds=1)

    done = await turn(core, clock, "retry", Filter(kind="export"), Line(), **grants)

    assert (done.result["refused"], done.result["done"]) == (refused, 0 if refused else 1)


async def test_a_bulk_retry_is_frozen_with_what_its_asker_may_use(clients: Clients) -> None:
    await clients.token("carol", "analyst", engines=["local"], destinations=["lake"])

    started = await (await clients("carol")).post("/api/jobs/retry", json={"all": True})

    payload = started.json()["data"]["payload"]
    assert (payload["engines"], payload["destinations"], payload["engine_roles"]) == (["local"], ["lake"], [])
