"""No credential appears in a log or in an answer (I9)."""

import httpx2
import pytest

from paddock import log
from paddock.api import signin
from paddock.jobs.core import Core
from paddock.jobs.events import OwnedEvent, emit
from paddock.jobs.model import NewEvent
from tests.api.conftest import Clients
from tests.playing import read, worker

ID = "019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7"


@pytest.mark.usefixtures("logging_put_back")
async def test_logs_hold_no_secret_whatever_goes_wrong(
    clients: Clients,
    root: httpx2.AsyncClient,
    ada: httpx2.AsyncClient,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log.configure("debug", "json")
    made = (await root.post("/api/tokens", json={"name": "carol", "role": "ops"})).json()["data"]["token"]
    hook = (await ada.post("/api/webhooks", json={"url": "https://example.com/", "types": ["*"]})).json()["data"][
        "secret"
    ]
    session = await signin.sign_in(clients.tokens, clients.secrets["ada"])
    assert session is not None
    code = await signin.create_link(clients.tokens, (await clients.tokens.by_secret(made)).token_id)  # type: ignore[union-attr]
    secrets = [*clients.secrets.values(), made, hook, session.id, session.csrf, code, "hunter2-hunter2"]

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"Authorization: Bearer {made} password=hunter2-hunter2 {clients.secrets['ada']}")

    await ada.post("/api/jobs", json={"kind": "plain", "payload": {"password": "hunter2-hunter2"}})
    await ada.post("/api/jobs", json={"kind": "nonesuch", "payload": {"password": "hunter2-hunter2"}})
    await ada.post("/api/jobs", content=b"not json: hunter2-hunter2")
    monkeypatch.setattr(clients.app.state.plane.core, "job", broken)
    assert (await ada.get(f"/api/jobs/{ID}", headers={"X-Request-Id": "the-request"})).status_code == 500

    written = capfd.readouterr()
    text = written.out + written.err
    assert '"request_id":"the-request"' in text, "the log of the failure names its request"
    for secret in secrets:
        assert secret not in text


async def test_a_payload_that_holds_secrets_comes_back_masked(ada: httpx2.AsyncClient) -> None:
    payload = {
        "password": "hunter2",
        "deep": [{"api_key": "hunter2", "url": "postgresql://ada:hunter2@db/shop"}],
        "access_token": "hunter2",
        "token_name": "kept",
        "note": "pdk_hunter2hunter2hunter2",
        "n": 1,
    }
    submitted = await ada.post("/api/jobs", json={"kind": "plain", "payload": payload})
    read = await ada.get(submitted.headers["location"])

    for answer in (submitted, read, await ada.get("/api/jobs")):
        assert "hunter2" not in answer.text
    assert read.json()["data"]["payload"]["token_name"] == "kept"
    assert read.json()["data"]["payload"]["n"] == 1


async def test_a_result_that_holds_secrets_comes_back_masked(ada: httpx2.AsyncClient, core: Core) -> None:
    submitted = await ada.post("/api/jobs", json={"kind": "plain", "payload": {}})
    result = {"password": "hunter2", "deep": [{"url": "postgresql://ada:hunter2@db/shop"}], "rows": 7}
    assert await (await (await worker(core)).claim_one()).finish(result=result) == "accepted"

    own = submitted.headers["location"]
    answers = [await ada.get(path) for path in (own, f"{own}?wait=1", "/api/jobs", f"{own}/timeline")]
    for answer in answers:
        assert "hunter2" not in answer.text
    assert answers[0].json()["data"]["result"]["rows"] == 7


async def test_a_report_that_holds_secrets_is_kept_and_comes_back_masked(ada: httpx2.AsyncClient, core: Core) -> None:
    submitted = await ada.post("/api/jobs", json={"kind": "plain", "payload": {}})
    played = await worker(core)
    attempt = await played.claim_one()
    url = "postgresql://ada:hunter2@db/shop"
    await played.report(attempt, phase=f"reading {url}", access_token="hunter2", deep=[{"url": url}], rows=7)

    own = submitted.headers["location"]
    answers = [await ada.get(path) for path in (own, "/api/jobs", f"{own}/timeline")]
    for answer in answers:
        assert answer.status_code == 200
        assert "hunter2" not in answer.text
    report = answers[0].json()["data"]["report"]
    assert report == {
        "phase": "reading postgresql://***@db/shop",
        "access_token": "***",
        "deep": [{"url": "postgresql://***@db/shop"}],
        "rows": 7,
    }
    assert (await read(core, attempt.id)).report == report, "masked where it is taken: nobody who reads it has to"


async def test_a_fact_that_holds_secrets_comes_back_masked(ada: httpx2.AsyncClient, core: Core) -> None:
    data = {"password": "hunter2", "deep": [{"url": "postgresql://ada:hunter2@db/shop"}], "n": 1}
    async with core.db.transaction() as tx:
        await emit(core, tx, [OwnedEvent(NewEvent("thing.happened", "thing:1", data), "ada")])
    listed = await ada.get("/api/events")
    [event] = listed.json()["data"]
    read = await ada.get(f"/api/events/{event['id']}")

    for answer in (listed, read):
        assert "hunter2" not in answer.text
    assert read.json()["data"]["data"]["n"] == 1
