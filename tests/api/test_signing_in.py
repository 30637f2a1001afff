"""How a browser signs in, and what another site cannot make it do."""

import asyncpg
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response

from paddock.api import signin
from paddock.api.signin import COOKIE, SECURE_COOKIE, WebSession
from paddock.config import Config
from tests.api.conftest import BASE, Clients

OWN = {"Origin": BASE, "Sec-Fetch-Site": "same-origin"}


async def browser(clients: Clients, name: str) -> tuple[httpx2.AsyncClient, WebSession]:
    session = await signin.sign_in(clients.tokens, clients.secrets[name])
    assert session is not None
    client = httpx2.AsyncClient(
        transport=httpx2.ASGITransport(clients.app), base_url=BASE, cookies={COOKIE: session.id}
    )
    return await clients.stack.enter_async_context(client), session


async def test_a_link_works_once_and_for_five_minutes(
    clients: Clients, ada: httpx2.AsyncClient, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    made = (await ada.post("/api/tokens/self/sign-in-link")).json()["data"]
    code = made["path"].partition("#code=")[2]
    assert made["url"] == BASE + made["path"]

    assert await signin.exchange_link(clients.tokens, "wrong") is None
    session = await signin.exchange_link(clients.tokens, code)
    assert session is not None
    caller = await clients.tokens.by_web_session(session.id)
    assert caller is not None
    assert (caller.owner, caller.csrf) == ("ada", session.csrf)
    assert await signin.exchange_link(clients.tokens, code) is None, "it was used"

    late = (await ada.post("/api/tokens/self/sign-in-link")).json()["data"]["path"].partition("#code=")[2]
    await connection.execute("UPDATE sign_in_links SET expires_at = now() - interval '1 second'")
    assert await signin.exchange_link(clients.tokens, late) is None


async def test_nothing_that_signs_in_is_kept_as_it_is(
    clients: Clients, ada: httpx2.AsyncClient, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    code = (await ada.post("/api/tokens/self/sign-in-link")).json()["data"]["path"].partition("#code=")[2]
    session = await signin.sign_in(clients.tokens, clients.secrets["ada"])
    assert session is not None
    dump = str(await connection.fetch("SELECT w::text FROM web_sessions w")) + str(
        await connection.fetch("SELECT l::text FROM sign_in_links l")
    )
    assert session.id not in dump
    assert code not in dump


async def test_the_cookie_reads_and_changes_need_more(clients: Clients) -> None:
    client, session = await browser(clients, "ada")
    csrf = {"X-CSRF-Token": session.csrf}

    assert (await client.get("/api/jobs")).status_code == 200
    for headers, status in (
        ({}, 403),
        (OWN, 403),
        (csrf, 403),
        ({**OWN, "X-CSRF-Token": "guess"}, 403),
        ({**csrf, "Origin": "https://evil.example"}, 403),
        ({**csrf, "Origin": BASE, "Sec-Fetch-Site": "cross-site"}, 403),
        ({**csrf, "Origin": BASE, "Sec-Fetch-Site": "same-site"}, 403),
        ({**csrf, "Origin": "null"}, 403),
        ({**csrf, **OWN}, 202),
        ({**csrf, "Origin": BASE}, 202),
        ({**csrf, "Sec-Fetch-Site": "same-origin"}, 202),
        ({**csrf, "Origin": BASE.replace("http:", "https:"), "Sec-Fetch-Site": "same-origin"}, 202),
        ({**csrf, "Origin": BASE.replace("http:", "https:"), "Sec-Fetch-Site": "none"}, 403),
    ):
        answer = await client.post("/api/jobs", json={"kind": "plain"}, headers=headers)
        assert answer.status_code == status, headers


async def test_the_stream_is_not_for_other_sites(clients: Clients) -> None:
    client, _ = await browser(clients, "ada")
    foreign = await client.get("/api/stream", headers={"Sec-Fetch-Site": "cross-site"})
    assert (foreign.status_code, foreign.json()["error"]["code"]) == (403, "cross_site")
    own = await client.get("/api/stream?group=no-id", headers={"Sec-Fetch-Site": "same-origin"})
    assert own.status_code == 422, "past the check"


async def test_a_session_dies_with_its_token(clients: Clients, root: httpx2.AsyncClient) -> None:
    client, session = await browser(clients, "ada")
    assert (await client.get("/api/jobs")).status_code == 200
    caller = await clients.tokens.by_web_session(session.id)
    assert caller is not None

    await root.delete(f"/api/tokens/{caller.token_id}")

    assert (await client.get("/api/jobs")).status_code == 401


async def test_signing_out_ends_the_session(clients: Clients) -> None:
    client, session = await browser(clients, "ada")
    await signin.sign_out(clients.tokens, session.id)
    assert (await client.get("/api/jobs")).status_code == 401


async def test_workers_have_nothing_to_sign_in_to(clients: Clients) -> None:
    assert await signin.sign_in(clients.tokens, clients.secrets["worker"]) is None
    assert await signin.sign_in(clients.tokens, "pdk_nonesuch") is None


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (Config(), "paddock_session="),
        (Config(public_url="https://paddock.example"), "__Host-paddock_session="),
    ],
)
async def test_the_cookie_is_closed_to_scripts_and_under_https_to_plain_http(clients: Clients, expected: str) -> None:
    session = await signin.sign_in(clients.tokens, clients.secrets["ada"])
    assert session is not None
    scope = {"type": "http", "app": clients.app, "headers": [], "scheme": "http", "path": "/", "server": ("h", 80)}
    response = Response()
    signin.set_cookie(response, Request(scope), session)
    cookie = response.headers["set-cookie"]

    assert cookie.startswith(expected)
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert ("Secure" in cookie) == expected.startswith("__Host-")


# What a browser that is at https://paddock.corp sends through a proxy that ends TLS and keeps the Host.
BEHIND_TLS = {"Host": "paddock.corp", "Origin": "https://paddock.corp", "X-Forwarded-Proto": "https"}
NEW_BROWSER = {**BEHIND_TLS, "Sec-Fetch-Site": "same-origin"}
ELSEWHERE = Config(trusted_proxies=("10.0.0.0/8",))  # the tests' own proxy is on loopback
BY_ADDRESS = Config(trusted_proxies=("10.0.0.0/8",), public_url="https://paddock.corp")


@pytest.mark.parametrize(
    ("config", "headers", "cookie"),
    [
        (ELSEWHERE, NEW_BROWSER, COOKIE),
        (ELSEWHERE, {**NEW_BROWSER, "Host": "10.1.2.3:8080"}, COOKIE),
        (ELSEWHERE, BEHIND_TLS, None),
        (ELSEWHERE, {**BEHIND_TLS, "Sec-Fetch-Site": "cross-site"}, None),
        (BY_ADDRESS, BEHIND_TLS, SECURE_COOKIE),
        (BY_ADDRESS, {**BEHIND_TLS, "Host": "10.1.2.3:8080"}, SECURE_COOKIE),
        (Config(), BEHIND_TLS, SECURE_COOKIE),
        (Config(trusted_proxies=("127.0.0.0/8",)), NEW_BROWSER, SECURE_COOKIE),
    ],
)
async def test_a_browser_signs_in_through_a_proxy_that_ends_tls(
    clients: Clients, served: str, headers: dict[str, str], cookie: str | None
) -> None:
    async with httpx2.AsyncClient(base_url=served) as client:
        answer = await client.post("/sign-in", data={"token": clients.secrets["ada"]}, headers=headers)

    assert answer.status_code == (403 if cookie is None else 303)
    assert answer.headers.get("set-cookie", "").partition("=")[0] == (cookie or "")
