"""Run by the test in a process of its own, which sees the package `stables`: where people find its grant, as JSON."""

import asyncio
import json
import re
import sys
from typing import Any

import httpx2
from prometheus_client import CollectorRegistry

from paddock.api.app import create_app
from paddock.api.tokens import Tokens, everything
from paddock.config import Config
from paddock.db.migrate import migration_folders
from paddock.jobs.bulk import BULK
from paddock.jobs.core import open_core
from paddock.jobs.kinds import Kinds, add_entry_points
from paddock.metrics import Metrics
from paddock.web import pages

BASE = "http://paddock.test"


async def main(dsn: str) -> dict[str, Any]:
    kinds = Kinds([BULK])
    add_entry_points(kinds)
    async with open_core(dsn, kinds, metrics=Metrics(CollectorRegistry())) as core:
        app = create_app(core, Config(), routes=pages.routes())
        _, secret = await Tokens(core.db).create(everything("root", "admin"), actor="test")

        def client(token: str | None = None) -> httpx2.AsyncClient:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE, headers=headers)

        async with client(secret) as root, client() as browser:
            body = {"name": "ada", "role": "analyst", "stables": ["north"]}
            made = await root.post("/api/tokens", json=body)
            if made.status_code != 201:
                return {"status": made.status_code, "error": made.json()["error"]}
            await browser.post("/sign-in", data={"token": secret}, headers={"origin": BASE})
            answer: dict[str, Any] = {
                "owners": list(migration_folders()),
                "made": made.json()["data"]["stables"],
                "listed": [token.get("stables") for token in (await root.get("/api/tokens")).json()["data"]],
                "form": re.findall(
                    r'<input name="(\w+)" value="" maxlength="2000"', await text(browser, "/settings/tokens/new")
                ),
                "page": "stables: north" in await text(browser, "/settings/tokens"),
                "root": (await root.post("/api/jobs", json=groom("south"))).status_code,
                "described": "stables" in (await root.get("/openapi.json")).text,
            }
        async with client(made.json()["data"]["token"]) as ada:
            refused = await ada.post("/api/jobs", json=groom("south"))
            bulk = await ada.post("/api/jobs/retry", json={"all": True})
            return answer | {
                "self": (await ada.get("/api/tokens/self")).json()["data"]["stables"],
                "allowed": (await ada.post("/api/jobs", json=groom("north"))).status_code,
                "refused": [refused.status_code, refused.json()["error"]["code"], refused.json()["error"]["message"]],
                "bulk": bulk.json()["data"]["payload"]["stables"],
            }


def groom(stable: str) -> dict[str, Any]:
    return {"kind": "groom", "payload": {"stable": stable}}


async def text(client: httpx2.AsyncClient, path: str) -> str:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.text


if __name__ == "__main__":
    json.dump(asyncio.run(main(sys.argv[1])), sys.stdout)
