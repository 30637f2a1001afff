"""Tokens: shown once, kept as a hash, gone at once when revoked."""

from pathlib import Path
from uuid import UUID

import asyncpg
import httpx2
import pytest

from paddock.api.tokens import NewToken, Tokens, everything, new_secret
from paddock.capability import grants
from paddock.jobs.core import Core
from paddock.up.database import prepare
from paddock.up.errors import UpError
from tests.api.conftest import BASE, Clients


async def as_bearer(clients: Clients, secret: str, path: str = "/api/jobs") -> int:
    transport = httpx2.ASGITransport(clients.app)
    async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
        return (await client.get(path, headers={"Authorization": f"Bearer {secret}"})).status_code


async def test_a_token_is_shown_once_and_works(clients: Clients, root: httpx2.AsyncClient) -> None:
    made = await root.post("/api/tokens", json={"name": "laptop", "owner": "carol", "role": "analyst"})

    assert made.status_code == 201
    secret = made.json()["data"]["token"]
    assert secret.startswith("pdk_")
    assert len(secret) >= 4 + 22, "128 bits at least"
    assert await as_bearer(clients, secret) == 200
    assert secret not in (await root.get("/api/tokens")).text
    assert (await root.get("/api/tokens")).json()["data"][0]["name"] == "laptop"


async def test_only_its_hash_is_kept(clients: Clients, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    dump = str(await connection.fetch("SELECT t::text FROM tokens t"))
    for secret in clients.secrets.values():
        assert secret not in dump


async def test_a_revoked_token_stops_at_once(clients: Clients, root: httpx2.AsyncClient) -> None:
    made = (await root.post("/api/tokens", json={"name": "carol", "role": "analyst"})).json()["data"]
    assert await as_bearer(clients, made["token"]) == 200

    revoked = await root.delete(f"/api/tokens/{made['id']}")

    assert revoked.json()["data"]["revoked_at"] is not None
    assert await as_bearer(clients, made["token"]) == 401
    assert (await root.delete("/api/tokens/019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7")).status_code == 404
    audit = (await root.get("/api/audit", params={"subject": f"token:{made['id']}"})).json()["data"]
    assert [entry["action"] for entry in audit] == ["token_revoked", "token_created"]
    assert audit[0]["actor"] == "root"
    assert made["token"] not in str(audit)


async def test_an_expired_token_does_not_work(clients: Clients, root: httpx2.AsyncClient) -> None:
    body = {"name": "carol", "role": "analyst", "expires_at": "2020-01-01T00:00:00Z"}
    made = (await root.post("/api/tokens", json=body)).json()["data"]
    assert await as_bearer(clients, made["token"]) == 401


async def test_the_last_admin_token_cannot_be_revoked(root: httpx2.AsyncClient) -> None:
    own = (await root.get("/api/tokens/self")).json()["data"]
    refused = await root.delete(f"/api/tokens/{own['id']}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "last_admin")

    await root.post("/api/tokens", json={"name": "second", "role": "admin"})
    assert (await root.delete(f"/api/tokens/{own['id']}")).status_code == 200
    assert (await root.get("/api/tokens/self")).status_code == 401


async def test_last_use_is_written_at_most_once_a_minute(
    clients: Clients, core: Core, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    async def last_used() -> object:
        return await connection.fetchval("SELECT last_used_at FROM tokens WHERE name = 'ada'")

    ada = await clients("ada")
    assert await last_used() is None
    await ada.get("/api/jobs")
    first = await last_used()
    assert first is not None
    clients.tokens.forget()
    await ada.get("/api/jobs")
    assert await last_used() == first
    await connection.execute("UPDATE tokens SET last_used_at = last_used_at - interval '2 minutes' WHERE name = 'ada'")
    clients.tokens.forget()
    await ada.get("/api/jobs")
    assert await last_used() != first


async def test_a_look_up_is_remembered(clients: Clients, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    ada = await clients("ada")
    await ada.get("/api/tokens/self")
    await connection.execute("UPDATE tokens SET revoked_at = now() WHERE name = 'ada'")  # as another replica would
    assert (await ada.get("/api/tokens/self")).status_code == 200
    clients.tokens.forget()
    assert (await ada.get("/api/tokens/self")).status_code == 401


async def test_up_keeps_the_token_of_its_file(core: Core) -> None:
    tokens, secret = Tokens(core.db), new_secret()
    assert await tokens.keep(everything("admin", "admin"), secret, actor="paddock up")
    assert await tokens.keep(everything("admin", "admin"), secret, actor="paddock up"), "a second start finds it"
    assert len(await tokens.page(None, 100)) == 1
    await tokens.create(everything("other", "admin"), actor="test")
    caller = await tokens.by_secret(secret)
    assert caller is not None
    await tokens.revoke(UUID(str(caller.token_id)), actor="test")
    assert not await tokens.keep(everything("admin", "admin"), secret, actor="paddock up"), "it needs a fresh one"


async def test_up_grants_its_token_what_came_with_a_newer_capability(core: Core) -> None:
    tokens, secret = Tokens(core.db), new_secret()
    older = NewToken(name="admin", role="admin", owner="admin", grants={"engines": ["*"]})
    await tokens.keep(older, secret, actor="paddock up")
    await tokens.keep(everything("admin", "admin"), secret, actor="paddock up")
    caller = await tokens.by_secret(secret)
    assert caller is not None
    assert caller.may_use("databases", "shop")
    assert caller.grants == {grant.name: {"*"} for grant in grants()}


async def test_bad_tokens_are_refused_field_by_field(root: httpx2.AsyncClient) -> None:
    for body, field in (
        ({"name": "x", "role": "king"}, "role"),
        ({"role": "ops"}, "name"),
        ({"name": "", "role": "ops"}, "name"),
        ({"name": "a\nb", "role": "ops"}, "name"),
        ({"name": "x", "role": "ops", "secret": "mine"}, "secret"),
        ({"name": "x", "role": "ops", "expires_at": "2026-01-01T00:00:00"}, "expires_at"),
        ({"name": "x", "role": "ops", "kinds": ["plain"]}, "body"),
    ):
        refused = await root.post("/api/tokens", json=body)
        assert refused.status_code == 422
        assert [found["field"] for found in refused.json()["error"]["details"]["fields"]] == [field]


@pytest.mark.parametrize("text", ["hunter2", "pdk_short", "pdk_" + "x" * 31 + "!", "pdk_" + "x" * 32 + " and more"])
async def test_a_token_file_that_paddock_did_not_write_stops_the_start(dsn: str, tmp_path: Path, text: str) -> None:
    """Whatever it holds would be an admin's token otherwise."""
    file = tmp_path / "admin.token"
    file.write_text(text)
    with pytest.raises(UpError, match=r"admin\.token holds no token that Paddock made"):
        await prepare(dsn, tmp_path)
    assert file.read_text() == text


async def test_the_token_file_of_an_earlier_start_is_kept(dsn: str, tmp_path: Path) -> None:
    first = await prepare(dsn, tmp_path)
    assert await prepare(dsn, tmp_path) == first
