"""Files of a snapshot in a real S3: instances read them by signed links, which the control plane renews while they load."""

import http
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from paddock.config import Config
from paddock.db.pool import Database
from paddock.exports.snapshot_states import Snapshot
from paddock.instances import loading
from paddock.jobs.core import Core
from paddock.jobs.model import JsonObject
from paddock.runtimes.local import LocalRuntime
from tests.instances.processes.graph import WHOLE, counted, real_snapshot
from tests.instances.world import running, until
from tests.storage.servers import Server

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("at_work")]


@pytest.fixture
def config(tmp_path: Path, s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> Config:
    for name, value in s3_server.environ.items():
        monkeypatch.setenv(name, value)
    store = f"{s3_server.url}/{uuid4()}"
    return Config(data=tmp_path, object_store=store, engines={"local": {"type": "duckdb"}})


def links_of(tables: list[JsonObject]) -> list[str]:
    return [file["url"] for table in tables for file in table["files"]]


async def has_run_out(links: list[str]) -> None:
    async with httpx2.AsyncClient() as browser:

        async def refused() -> bool:
            answers = [await browser.get(link) for link in links]
            return all(answer.status_code != http.HTTPStatus.OK for answer in answers)

        await until("the links have run out", refused)


async def test_a_link_that_ran_out_in_the_middle_is_posted_anew(
    core: Core, config: Config, runtime: LocalRuntime, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[JsonObject] = []
    load_body = loading.load_body

    async def with_links_that_run_out(db: Database, config: Config, snapshot: Snapshot) -> JsonObject:
        """The first time, when it is told, the nodes can be fetched and the edges no more."""
        body = await load_body(db, config, snapshot)
        if not told:
            with monkeypatch.context() as short:
                short.setattr(loading, "LINKS_LIVE", timedelta(seconds=1))
                body["edges"] = (await load_body(db, config, snapshot))["edges"]
            await has_run_out(links_of(body["edges"]))
        told.append(body)
        return body

    monkeypatch.setattr(loading, "load_body", with_links_that_run_out)

    made = await running(core, ada, await real_snapshot(core, config))

    assert len(told) > 1, "once to begin, and once because a link had run out"
    assert await counted(ada, made["id"]) == WHOLE
    secrets = [link.partition("?")[2] for body in told for link in links_of([*body["nodes"], *body["edges"]])]
    assert all("X-Amz-Signature" in secret for secret in secrets)
    said = (await runtime.logs(f"ladybug-wrapper-{made['id']}-1") or "") + (
        await ada.get(f"/api/instances/{made['id']}")
    ).text
    kept = await core.db.pool("durable").fetchval(
        "SELECT string_agg(row_to_json(events)::text, '') FROM events WHERE subject = $1", f"instance:{made['id']}"
    )
    assert "X-Amz" not in said + kept, "a link is a secret"
