"""Events, webhooks, settings, tokens, audit and the way in, as pages: what they show, to whom, and what they refuse."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx2
import pytest
from fastapi import FastAPI

from paddock.api import facts, signin, webhook_health
from paddock.api.access import table_of
from paddock.api.app import create_app
from paddock.api.tokens import NewToken, Tokens
from paddock.config import load
from paddock.jobs import events, wire
from paddock.jobs.core import Core, open_core
from paddock.jobs.events import OwnedEvent
from paddock.jobs.kinds import Kinds
from paddock.jobs.model import NewEvent
from paddock.jobs.webhooks.delivering import WEBHOOK
from paddock.web import pages
from paddock.web.navigation import entries_for
from tests.kinds import TEST_KINDS

BASE = "http://paddock.test"
ODD = "<script>alert(1)</script> \"'& \u202eרע 🐎 " + "long" * 30
SECRETS = {"PADDOCK_METRICS_TOKEN": "hush-metrics", "PADDOCK_DATABASE_URL": "postgresql://u:hush-password@db/p"}


@pytest.fixture
async def core(dsn: str) -> AsyncIterator[Core]:
    async with open_core(dsn, Kinds([*TEST_KINDS, WEBHOOK])) as opened:
        yield opened


@pytest.fixture
def app(core: Core, tmp_path: Path) -> FastAPI:
    environ = {**SECRETS, "PADDOCK_LOG_DAYS": "3", "PADDOCK_DATA": str(tmp_path)}
    return create_app(core, load(environ, tmp_path), routes=pages.routes())


@dataclass
class Browser:
    """Somebody who is signed in."""

    client: httpx2.AsyncClient
    secret: str

    async def get(self, path: str, status: int = 200) -> str:
        answer = await self.client.get(path)
        assert answer.status_code == status, (path, answer.status_code, answer.headers.get("location"))
        return answer.text

    async def post(self, path: str, **fields: Any) -> httpx2.Response:
        csrf = re.search(r'name="csrf" value="([^"]+)"', await self.get("/settings"))
        assert csrf is not None
        return await self.client.post(path, data={"csrf": csrf[1], **fields}, headers={"origin": BASE})


Enter = Callable[..., Awaitable[Browser]]


@pytest.fixture
async def enter(app: FastAPI, core: Core) -> AsyncIterator[Enter]:
    async with AsyncExitStack() as stack:

        async def make(role: str = "admin", owner: str = "ruth") -> Browser:
            new = NewToken(name=owner, role=role, owner=owner)  # type: ignore[arg-type]
            _, secret = await Tokens(core.db).create(new, actor="test")
            client = await stack.enter_async_context(stranger(app))
            answer = await client.post("/sign-in", data={"token": secret}, headers={"origin": BASE})
            assert answer.status_code == 303
            return Browser(client, secret)

        yield make


def stranger(app: FastAPI) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE)


def shown(page: str) -> str:
    """What a person reads of it."""
    text = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    text = re.sub(r"</?(a|b|bdi|code|span|strong|time)\b[^>]*>", "", text)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", text)))


def once(page: str) -> str:
    found = re.search(r'id="once-secret"[^>]*>([^<]+)<', page)
    assert found is not None
    return unescape(found[1])


# Tokens


async def test_a_token_is_in_the_answer_to_its_form_and_nowhere_else(app: FastAPI, enter: Enter) -> None:
    ruth = await enter()
    made = await ruth.post("/settings/tokens", name="ada's laptop", role="analyst", owner="ada", expires="30")
    assert made.status_code == 200
    assert made.headers["cache-control"] == "no-store"
    secret = once(made.text)

    for path in ("/settings/tokens", "/audit", "/settings"):
        assert secret not in await ruth.get(path)
    listed = shown(await ruth.get("/settings/tokens"))
    assert "ada's laptop" in listed
    assert "in 30 d" in listed
    async with stranger(app) as client:
        who = await client.get("/api/tokens/self", headers={"authorization": f"Bearer {secret}"})
    assert (who.json()["data"]["owner"], who.json()["data"]["role"]) == ("ada", "analyst")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"name": ""}, "Fill this in."),
        ({"name": "x" * 201}, "200 characters at most"),
        ({"owner": "a\tb"}, "no control characters"),
        ({"role": "king"}, "Choose one."),
        ({"role": ""}, "Choose one."),
        ({"expires": "soon"}, "Choose one."),
    ],
)
async def test_a_wrong_form_says_what_is_wrong_and_keeps_what_was_typed(
    core: Core, enter: Enter, wrong: dict[str, str], told: str
) -> None:
    ruth = await enter()
    fields = {"name": "laptop", "role": "analyst", "owner": "ada", "expires": "30", "engines": "duckdb", **wrong}
    answer = await ruth.post("/settings/tokens", **fields)
    assert answer.status_code == 422
    assert told in shown(answer.text)
    assert 'value="duckdb"' in answer.text
    assert len(await Tokens(core.db).page(None, 10)) == 1


async def test_a_workers_token_claims_the_kinds_that_were_ticked(core: Core, enter: Enter) -> None:
    ruth = await enter()
    for name, kinds in (("some", ["plain", "other"]), ("all", [])):
        await ruth.post("/settings/tokens", name=name, role="worker", owner="", expires="", kinds=kinds)
    await ruth.post("/settings/tokens", name="person", role="ops", owner="", expires="", kinds=["plain"])
    made = {token["name"]: token for token in await Tokens(core.db).page(None, 10)}
    assert made["some"]["kinds"] == ["plain", "other"]
    assert (made["all"]["kinds"], made["person"]["kinds"]) == (None, None)
    assert (made["some"]["owner"], made["some"]["expires_at"]) == ("some", None)


async def test_a_revoked_token_signs_out_whoever_used_it(core: Core, enter: Enter) -> None:
    ruth, ada = await enter(), await enter("analyst", "ada")
    token = next(token for token in await Tokens(core.db).page(None, 10) if token["name"] == "ada")
    answer = await ruth.post(f"/settings/tokens/{token['id']}/revoke", reason="left")
    assert answer.headers["location"] == "/settings/tokens"
    left = await ada.client.get("/jobs?status=failed")
    assert (left.status_code, left.headers["location"]) == (303, "/sign-in?next=%2Fjobs%3Fstatus%3Dfailed")
    assert "left" in shown(await ruth.get("/audit?action=token_revoked"))


async def test_the_last_admin_token_stays(core: Core, enter: Enter) -> None:
    ruth = await enter()
    [own] = await Tokens(core.db).page(None, 10)
    answer = await ruth.post(f"/settings/tokens/{own['id']}/revoke")
    assert answer.status_code == 409
    assert "last admin token" in shown(answer.text)


# Who sees what


@pytest.mark.parametrize(
    ("role", "seen"),
    [
        ("admin", ["General", "Tokens", "Configuration", "Doctor"]),
        ("ops", ["General", "Configuration", "Doctor"]),
        ("analyst", []),
    ],
)
async def test_a_role_sees_its_settings_and_is_refused_the_others(enter: Enter, role: str, seen: list[str]) -> None:
    person = await enter(role, "pat")
    page = await person.get("/settings")
    tabs = re.search(r'<nav class="tabs".*?</nav>', page, re.DOTALL)
    assert re.findall(r"<a [^>]*>(\w+)</a>", tabs[0] if tabs else "") == seen
    assert ("Drain mode" in shown(page)) == (role != "analyst")
    assert "Create a sign-in link" in shown(page)
    for path in ("/settings/tokens", "/settings/tokens/new"):
        await person.get(path, 200 if role == "admin" else 403)
    for path in ("/settings/config", "/settings/doctor", "/audit"):
        await person.get(path, 403 if role == "analyst" else 200)
    token = await person.post("/settings/tokens", name="x", role="admin", expires="")
    assert token.status_code == (200 if role == "admin" else 403)
    drain = await person.post("/settings/drain", enabled="off")
    assert drain.status_code == (403 if role == "analyst" else 303)


# Drain mode


async def test_drain_mode_is_told_on_every_page_with_who_why_and_since_when(app: FastAPI, enter: Enter) -> None:
    olga, ada = await enter("ops", "olga"), await enter("analyst", "ada")
    await olga.post("/settings/drain", enabled="on", reason="database upgrade")
    for entry in entries_for("ops", table_of(app.routes)):
        page = await olga.get(entry.path)
        assert "Drain mode is on: database upgrade. New work is refused" in shown(page), entry.path
        assert re.search(r"By olga, since (now|\d+ s ago)", shown(page)), entry.path
    assert "By olga" in shown(await ada.get("/jobs"))
    async with stranger(app) as client:
        body = {"kind": "plain"}
        refused = await client.post("/api/jobs", json=body, headers={"authorization": f"Bearer {ada.secret}"})
    assert refused.status_code == 503

    await olga.post("/settings/drain", enabled="off", reason="done")
    assert "Drain mode is on" not in shown(await ada.get("/jobs"))


async def test_at_the_door_neither_the_reason_of_a_drain_nor_the_announcement_is_told(
    app: FastAPI, enter: Enter
) -> None:
    olga = await enter("ops", "olga")
    await olga.post("/settings/config", name="announcement", value="the vault moves to rack 9")
    await olga.post("/settings/drain", enabled="on", reason="acme's data leaked")
    assert "the vault moves to rack 9" in shown(await olga.get("/jobs"))
    async with stranger(app) as client:
        refused = await client.post("/sign-in", data={"token": "pdk_wrong"}, headers={"origin": BASE})
        foreign = await client.post("/sign-in", data={"token": "pdk_wrong"}, headers={"origin": "https://elsewhere"})
        for page in ((await client.get("/sign-in")).text, refused.text, foreign.text):
            assert "In maintenance. New work is refused" in shown(page)
            for told in ("acme", "rack 9", "olga"):
                assert told not in page, "what is going on is for those who are signed in"


# Settings of the installation, configuration, doctor


async def test_a_number_that_may_be_none_is_typed_as_a_number_and_none_as_nothing(enter: Enter) -> None:
    olga = await enter("ops", "olga")
    field = r'<input id="setting-export.quota_bytes"[^>]*inputmode="decimal" value="([^"]*)"'

    assert re.findall(field, await olga.get("/settings")) == [""]
    assert (await olga.post("/settings/config", name="export.quota_bytes", value="1000000000")).status_code == 303
    assert re.findall(field, await olga.get("/settings")) == ["1000000000"]
    await olga.post("/settings/config", name="export.quota_bytes", value="")
    assert re.findall(field, await olga.get("/settings")) == [""]


async def test_the_announcement_is_changed_refused_when_too_long_and_taken_back(enter: Enter) -> None:
    olga = await enter("ops", "olga")
    await olga.post("/settings/config", name="announcement", value=ODD)
    assert ODD.strip() in unescape(await olga.get("/jobs"))

    refused = await olga.post("/settings/config", name="announcement", value="é" * 501)
    assert refused.status_code == 422
    assert "500 characters" in shown(refused.text)
    assert "é" * 501 in refused.text
    unknown = await olga.post("/settings/config", name="nonesuch", value="1")
    assert unknown.status_code == 422

    await olga.post("/settings/config", name="announcement", value="")
    assert "Default." in shown(await olga.get("/settings"))


async def test_the_configuration_shows_values_and_sources_and_no_secret(enter: Enter) -> None:
    olga = await enter("ops", "olga")
    page = await olga.get("/settings/config")
    assert "hush" not in page
    assert re.search(r"PADDOCK_METRICS_TOKEN \*{8} PADDOCK_METRICS_TOKEN", shown(page))
    assert "PADDOCK_LOG_DAYS 3 PADDOCK_LOG_DAYS" in shown(page)
    assert "PADDOCK_HISTORY_DAYS 30 default" in shown(page)
    only = shown(await olga.get("/settings/config?only=set"))
    assert "PADDOCK_LOG_DAYS 3" in only
    assert "PADDOCK_HISTORY_DAYS" not in only


async def test_doctor_tells_what_is_broken_first_and_what_to_do(enter: Enter) -> None:
    olga = await enter("ops", "olga")
    text = shown(await olga.get("/settings/doctor"))
    assert re.search(r"\d broken", text)
    assert "No live worker. Start one: paddock worker. Workers" in text
    assert text.index("No live worker") < text.index("PostgreSQL 1"), "which is well"


# The way in


async def test_a_link_signs_in_once_and_the_second_is_told_when_it_was_used(app: FastAPI, enter: Enter) -> None:
    olga = await enter("ops", "olga")
    made = await olga.post("/settings/link")
    link = once(made.text)
    assert link.startswith(f"{BASE}/sign-in#code=")
    assert link not in await olga.get("/settings")
    code = link.partition("#code=")[2]
    async with stranger(app) as client:
        first = await try_in(client, code=code, next="/jobs?status=failed")
        assert (first.status_code, first.headers["location"]) == (303, "/jobs?status=failed")
    async with stranger(app) as client:
        second = await try_in(client, code=code)
        assert second.status_code == 401
        assert re.search(r"This link was used already, (now|\d+ s ago)", shown(second.text))


async def try_in(client: httpx2.AsyncClient, **fields: str) -> httpx2.Response:
    return await client.post("/sign-in", data=fields, headers={"origin": BASE})


async def test_each_refusal_at_the_door_says_why(
    app: FastAPI, core: Core, enter: Enter, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await enter()
    tokens = Tokens(core.db)

    async def make(name: str, role: str = "ops") -> tuple[Any, str]:
        new = NewToken(name=name, role=role, owner=name)  # type: ignore[arg-type]
        token, secret = await tokens.create(new, actor="test")
        return token["id"], secret

    revoked, expired, worker, late = await make("a"), await make("b"), await make("c", "worker"), await make("d")
    await tokens.revoke(revoked[0], actor="test")
    await connection.execute("UPDATE tokens SET expires_at = now() - interval '1 h' WHERE id = $1", expired[0])
    code = await signin.create_link(tokens, late[0])
    dead = await signin.create_link(tokens, expired[0])
    await connection.execute(
        "UPDATE sign_in_links SET expires_at = now() - interval '2 min' WHERE token_id = $1", late[0]
    )
    async with stranger(app) as client:
        for fields, told in (
            ({"token": revoked[1]}, "This token was revoked, now"),
            ({"token": expired[1]}, "This token has expired, 1 h ago"),
            ({"token": worker[1]}, "This is a worker's token."),
            ({"token": "pdk_nonesuch"}, "This token is not known here."),
            ({"token": "letmein"}, "A token begins with pdk_."),
            ({"token": ""}, "This token is not known here."),
            ({"code": code}, "This link has expired, 2 min ago"),
            ({"code": dead}, "This link has expired, 1 h ago"),
            ({"code": "wrong"}, "This link is not known here."),
        ):
            answer = await try_in(client, **fields)
            assert answer.status_code == 401
            assert told in shown(answer.text), fields


async def test_a_whole_link_may_be_pasted_where_the_token_goes(app: FastAPI, core: Core, enter: Enter) -> None:
    await enter()
    tokens = Tokens(core.db)
    [own] = await tokens.page(None, 10)
    code = await signin.create_link(tokens, own["id"])
    async with stranger(app) as client:
        assert (await try_in(client, token=f"{BASE}/sign-in#code={code}")).status_code == 303


async def test_who_is_signed_in_already_may_go_on(enter: Enter) -> None:
    ruth = await enter()
    page = await ruth.get("/sign-in?next=/jobs?status=failed")
    assert "You are signed in as ruth" in shown(page)
    assert 'href="/jobs?status=failed"' in page
    assert 'href="/"' in await ruth.get("/sign-in?next=//evil.example")


# Webhooks


async def test_a_webhook_shows_its_secret_once(enter: Enter) -> None:
    ada = await enter("analyst", "ada")
    made = await ada.post(
        "/webhooks", url="https://example.com/hook", types=["job.failed"], other="job.*, job.completed"
    )
    assert made.status_code == 200
    secret = once(made.text)
    assert secret.startswith("whsec_")
    [path] = set(re.findall(r'data-once="(/webhooks/[^"]+)"', made.text))
    page = await ada.get(path)
    assert secret not in page + await ada.get("/webhooks")
    assert all(type in shown(page) for type in ("job.failed", "job.*", "job.completed"))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"url": "https://127.0.0.1/hook", "types": "*"}, "PADDOCK_WEBHOOK_ALLOW_PRIVATE=true"),
        ({"url": "http://localhost:9000/hook", "types": "*"}, "Paddock sends to public addresses only"),
        ({"url": "https://db.internal/", "types": "*"}, "Paddock sends to public addresses only"),
        ({"url": "http://example.com/", "types": "*"}, "It must begin with https://."),
        ({"url": "https://u:p@example.com/", "types": "*"}, "check the signature instead"),
        ({"url": "", "types": "*"}, "Enter the address to deliver to."),
        ({"url": "https://example.com/"}, "Choose the events to deliver."),
        (
            {"url": "https://example.com/", "other": "job.fail"},
            "There is no event type 'job.fail'. Did you mean 'job.failed'?",
        ),
        ({"url": "https://example.com/", "types": "*", "all_owners": "on"}, "Only ops may subscribe"),
    ],
)
async def test_a_webhook_that_is_refused_is_explained(enter: Enter, fields: dict[str, str], told: str) -> None:
    ada = await enter("analyst", "ada")
    answer = await ada.post("/webhooks", **fields)
    assert answer.status_code in (403, 422)
    assert told in shown(answer.text)
    assert fields["url"] in unescape(answer.text), "what was typed is kept"
    assert "No webhooks." in shown(await ada.get("/webhooks"))


async def test_a_webhook_is_edited_and_tried_with_a_sample(core: Core, enter: Enter) -> None:
    ada = await enter("analyst", "ada")
    webhook = await subscribe(ada)
    own = f"/webhooks/{webhook}"
    form = await ada.get(f"{own}/edit")
    assert 'value="https://example.com/' in form
    wrong = await ada.post(f"{own}/edit", url="https://10.0.0.1/", types=["job.failed"], active="on")
    assert wrong.status_code == 422
    assert "Paddock sends to public addresses only" in shown(wrong.text)
    saved = await ada.post(
        f"{own}/edit", url="https://example.com/new", types=["job.failed"], other="job.*", active="on"
    )
    assert saved.headers["location"] == own
    assert "https://example.com/new" in await ada.get(own)
    tried = await ada.post(f"{own}/test", type="job.failed")
    assert "It is about to be sent." in shown(await ada.get(tried.headers["location"]))
    await ada.post(f"{own}/edit", url="https://example.com/new", types=["job.failed"], other="job.*")
    page = shown(await ada.get(own))
    assert "switched on again" in page
    assert "Send the sample" not in page
    bob = await enter("analyst", "bob")
    for path in (own, f"{own}/edit"):
        assert (await bob.client.get(path)).status_code == 404


async def test_editing_a_webhook_leaves_what_was_changed_meanwhile(core: Core, enter: Enter) -> None:
    ada = await enter("analyst", "ada")
    webhook = await subscribe(ada)
    own = f"/webhooks/{webhook}"
    shown_then = form_fields(await ada.get(f"{own}/edit"))
    await ada.post(f"{own}/edit", **{**shown_then, "url": "https://example.com/moved"})

    late = {**shown_then, "types": ["job.failed", "job.completed"]}
    assert (await ada.post(f"{own}/edit", **late)).headers["location"] == own
    [now] = await facts.webhooks_page(core.db, None, None, 10)
    assert (now["url"], sorted(now["types"])) == ("https://example.com/moved", ["job.completed", "job.failed"])

    same = form_fields(await ada.get(f"{own}/edit"))
    await ada.post(f"{own}/edit", **{**same, "types": list(reversed(same["types"]))})
    assert await facts.webhooks_page(core.db, None, None, 10) == [now], "the order of types says nothing"


def form_fields(page: str) -> dict[str, Any]:
    """What a browser would send of the form that was not touched."""
    form = page.partition('class="sheet"')[2].partition("</form>")[0]
    found: dict[str, Any] = {}
    for tag in re.findall(r"<input[^>]*>", form):
        known = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        if known.get("type") == "checkbox" and " checked" not in tag:
            continue
        found.setdefault(known["name"], []).append(unescape(known.get("value", "on")))
    found.pop("csrf")
    return {name: values if name.endswith("types") else values[0] for name, values in found.items()}


async def test_webhooks_are_found_by_state_owner_and_words(enter: Enter) -> None:
    ada, olga = await enter("analyst", "ada"), await enter("ops", "olga")
    on = await subscribe(ada, "https://example.com/Sales")
    off = await subscribe(ada, "https://example.com/stock")
    switched = await ada.post(f"/webhooks/{off}/edit", url="https://example.com/stock", types="*")
    assert switched.status_code == 303
    olgas = await subscribe(olga, "https://example.com/ops")
    by_query = {
        "status=on": {on, olgas},
        "status=off": {off},
        "owner=olga": {olgas},
        "q=sales": {on},
        "q=*": {on, off, olgas},
        "q=nonesuch": set(),
    }
    for query, wanted in by_query.items():
        page = await olga.get(f"/webhooks?{query}")
        assert {id for id in (on, off, olgas) if f"webhook-{id}" in page} == wanted, query
        asked = query.replace("status=on", "active=true").replace("status=off", "active=false")
        found = (await olga.client.get(f"/api/webhooks?{asked}")).json()["data"]
        assert {webhook["id"] for webhook in found} == wanted, query
    assert "No webhook matches." in shown(await olga.get("/webhooks?q=nonesuch"))
    assert olgas not in await ada.get("/webhooks?owner=olga")


async def test_everything_includes_the_other_boxes(core: Core, enter: Enter) -> None:
    olga = await enter("ops", "olga")
    await olga.post("/webhooks", url="https://example.com/", types=["*", "job.failed"], other="x", all_owners="on")
    [webhook] = await facts.webhooks_page(core.db, None, None, 10)
    assert (webhook["types"], webhook["all_owners"]) == (["*"], True)


async def test_the_list_tells_how_a_webhook_is_doing(core: Core, enter: Enter) -> None:
    ada = await enter("analyst", "ada")
    await subscribe(ada, "https://example.com/one")
    assert "silent" in shown(await ada.get("/webhooks"))
    await tell(core)
    await end_next(core, "done")
    assert re.search(r"well.*1 delivered", shown(await ada.get("/webhooks")))
    await tell(core)
    await end_next(core, "permanent", ODD)
    text = shown(await ada.get("/webhooks"))
    assert re.search(r"failing for (now|\d+ s).*1 delivered 1 failed", text)
    assert ODD.strip() in text


async def test_a_test_event_is_sent_and_its_page_tells_how_it_went(core: Core, enter: Enter) -> None:
    ada = await enter("analyst", "ada")
    webhook = await subscribe(ada)
    answer = await ada.post(f"/webhooks/{webhook}/test")
    page = answer.headers["location"]
    assert "It is about to be sent." in shown(await ada.get(page))
    await end_next(core, "transient", "The receiver answered 503.")
    assert "retrying The receiver answered 503. Look there. Next try in" in shown(await ada.get(page))

    delivered = (await ada.post(f"/webhooks/{webhook}/test")).headers["location"]
    await end_next(core, "done")
    assert re.search(r"delivered The receiver answered 204 after [\d.]+ m?s", shown(await ada.get(delivered)))


async def test_the_health_of_a_webhook_is_counted_only_for_the_region_that_shows_it(
    enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await enter("analyst", "ada")
    webhook = await subscribe(ada)
    counted: list[object] = []
    health = webhook_health.health

    async def noted(*arguments: Any) -> Any:
        counted.append(arguments)
        return await health(*arguments)

    monkeypatch.setattr(webhook_health, "health", noted)
    for regions, times in (("told,trial", 0), ("health", 1)):
        answer = await ada.client.get(f"/webhooks/{webhook}", headers={"x-paddock-regions": regions})
        assert set(answer.json()["regions"]) == {"standing", *regions.split(",")}
        assert len(counted) == times, regions


async def test_what_belongs_to_another_is_not_there(core: Core, enter: Enter) -> None:
    ada, bob = await enter("analyst", "ada"), await enter("analyst", "bob")
    webhook = await subscribe(ada)
    event = await tell(core)
    for path in (f"/webhooks/{webhook}", f"/events/{event}"):
        await ada.get(path)
        await bob.get(path, 404)
    for path in (f"/webhooks/{webhook}/test", f"/webhooks/{webhook}/delete", f"/events/{event}/redeliver"):
        assert (await bob.post(path)).status_code == 404
    assert webhook not in await bob.get("/webhooks")
    assert str(event) not in await bob.get("/events")
    await ada.post(f"/webhooks/{webhook}/delete")
    assert "No webhooks." in shown(await ada.get("/webhooks"))


# Events


async def test_only_the_failed_deliveries_are_sent_again(core: Core, enter: Enter) -> None:
    ada = await enter("analyst", "ada")
    for name in ("one", "two", "three"):
        await subscribe(ada, f"https://example.com/{name}")
    event = await tell(core)
    for outcome in ("done", "permanent", "permanent"):
        await end_next(core, outcome)
    page = shown(await ada.get(f"/events/{event}"))
    assert "Redeliver all 2 that failed" in page
    assert "The receiver answered 500. Look there." in page

    answer = await ada.post(f"/events/{event}/redeliver")
    assert answer.headers["location"] == f"/events/{event}"
    told = await facts.delivery_counts(core.db, caller("ada"), [event])
    assert told[event] == {"completed": 1, "failed": 2, "pending": 2}
    again = await ada.post(f"/events/{event}/redeliver")
    assert again.status_code == 409
    assert "No delivery of this event is failed any more." in shown(again.text)


async def test_one_webhook_is_told_again(core: Core, enter: Enter) -> None:
    ada = await enter("analyst", "ada")
    first = await subscribe(ada, "https://example.com/one")
    await subscribe(ada, "https://example.com/two")
    event = await tell(core)
    for _ in range(2):
        await end_next(core, "done")
    await ada.post(f"/events/{event}/redeliver", webhook_id=first)
    rows = await facts.deliveries(core.db, caller("ada"), event)
    assert [str(row["webhook_id"]) for row in rows if row["status"] == "pending"] == [first]
    assert (await ada.post(f"/events/{event}/redeliver", webhook_id="x")).status_code == 422


async def test_events_are_narrowed_by_chips_and_come_in_pages(core: Core, enter: Enter) -> None:
    ruth = await enter()
    await subscribe(ruth, all_owners="on")
    for n in range(51):
        await tell(core, f"tables/{n}")
    page = await ruth.get("/events")
    older = re.search(r'href="(/events\?cursor=[^"]+)"', page)
    assert older is not None
    last = await ruth.get(unescape(older[1]))
    assert (page.count('<tr id="event-'), last.count('<tr id="event-')) == (50, 1)
    one = await ruth.get("/events?type=table.compacted&subject=tables/7")
    assert one.count('<tr id="event-') == 1
    assert 'aria-label="Remove Subject tables/7"' in one
    assert 'href="/events?type=table.compacted"' in one, "the chip of the subject leads to the rest"
    assert "No event matches." in shown(await ruth.get("/events?type=nonesuch"))


async def test_an_event_leads_to_what_it_is_about(core: Core, enter: Enter) -> None:
    ruth = await enter()
    webhook = await subscribe(ruth)
    id = uuid4()
    for subject in (str(id), f"instance:{id}", f"snapshot:{id}", f"ingest:{id}", "dump:export_1", "table:lake.a.b.c"):
        await tell(core, subject)
    await ruth.post(f"/webhooks/{webhook}/test", type="job.failed")
    page = await ruth.get("/events")
    places = [
        f"jobs/{id}",
        f"instances/{id}",
        f"snapshots/{id}",
        f"ingest/runs/{id}",
        "dumps/export_1",
        "tables/lake.a.b.c",
    ]
    for place in places:
        assert f'href="/{place}"' in page
    assert f'href="/webhooks/{webhook}"' in page
    assert "/jobs/webhook" not in page, "a sample is of type job.failed, and about no job"
    [sample] = await facts.events_page(core.db, None, before=None, subject=f"webhook:{webhook}", type=None, limit=5)
    one = await ruth.get(f"/events/{sample['id']}")
    assert f'href="/webhooks/{webhook}"' in one
    assert "/jobs/webhook" not in one


# Audit


async def test_the_audit_log_is_narrowed_and_leads_to_what_was_changed(core: Core, enter: Enter) -> None:
    ruth, olga = await enter(), await enter("ops", "olga")
    await olga.post("/settings/drain", enabled="on", reason=ODD)
    await olga.post("/settings/drain", enabled="off")
    await subscribe(olga)
    [webhook] = await facts.webhooks_page(core.db, None, None, 10)
    page = await ruth.get("/audit?actor=olga&since=24h")
    assert page.count('<tr id="entry-') == 3
    assert f'href="/webhooks/{webhook["id"]}"' in page
    assert ODD.strip() in shown(page)
    assert 'href="/settings/tokens"' in await ruth.get("/audit?action=token_created")
    assert 'href="/settings/tokens"' not in await olga.get("/audit?action=token_created"), "they may not go there"
    assert (await ruth.get("/audit?action=drain_on")).count('<tr id="entry-') == 1
    assert "Nothing matches." in shown(await ruth.get("/audit?actor=olg"))


async def test_an_id_alone_means_a_job(core: Core, enter: Enter) -> None:
    from tests.playing import submit

    ruth = await enter()
    [id] = await submit(core)
    await ruth.post(f"/jobs/{id}/cancel", reason="wrong table")
    page = await ruth.get(f"/audit?subject={id}")
    assert "wrong table" in shown(page)
    assert f'href="/jobs/{id}"' in page


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("since=0001-01-01", 200),
        ("since=9999-12-31T23:59:59", 200),
        ("since=99999999w", 422),
        ("since=999999999w", 422),
        ("since=yesterday", 422),
        ("cursor=nonsense", 422),
        ("actor=%F0%9F%90%8E&action=%22%3E%3Cb%3E", 200),
        (f"subject={'x' * 3000}", 200),
    ],
)
async def test_hostile_queries_are_answered_calmly(enter: Enter, query: str, status: int) -> None:
    ruth = await enter()
    assert "<b>" not in (await ruth.get(f"/audit?{query}", status))


# Markup, and forms of others


async def test_no_text_becomes_markup(core: Core, enter: Enter) -> None:
    ruth = await enter("admin", "ruth <b>x</b>")
    name = ODD.strip()[:200]
    made = await ruth.post("/settings/tokens", name=name, role="ops", owner=name, expires="", engines=ODD)
    assert "<script>alert" not in made.text
    hook = await ruth.post(
        "/webhooks", url='https://example.com/<script>alert(1)</script>"x', types="*", all_owners="on"
    )
    assert "<script>alert" not in hook.text
    await ruth.post("/settings/drain", enabled="on", reason=ODD)
    event = await tell(core, ODD, type="x.y", data={ODD: ODD})
    await end_next(core, "permanent", ODD)
    [webhook] = await facts.webhooks_page(core.db, None, None, 10)
    paths = ["/settings", "/settings/tokens", "/webhooks", f"/webhooks/{webhook['id']}", "/events", f"/events/{event}"]
    for path in [*paths, "/audit", "/settings/doctor", "/sign-in"]:
        page = await ruth.get(path)
        assert "<script>alert" not in page, path
        assert "<b>x</b>" not in page, path


FORMS = {
    "/settings/drain": {"enabled": "on"},
    "/settings/config": {"name": "announcement", "value": "mine"},
    "/settings/link": {},
    "/settings/tokens": {"name": "mine", "role": "admin", "expires": ""},
    "/settings/tokens/{token}/revoke": {},
    "/webhooks": {"url": "https://evil.example/", "types": "*"},
    "/webhooks/{webhook}/delete": {},
    "/webhooks/{webhook}/test": {},
    "/events/{event}/redeliver": {},
}


@pytest.mark.parametrize("path", FORMS)
async def test_a_form_of_another_origin_or_without_its_token_changes_nothing(
    core: Core, enter: Enter, path: str, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    ruth = await enter()
    webhook = await subscribe(ruth, all_owners="on")
    event = await tell(core)
    [own] = await Tokens(core.db).page(None, 10)
    target = path.format(token=own["id"], webhook=webhook, event=event)
    page = await ruth.get("/settings")
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None
    before = await state(connection)
    for csrf, headers in (
        (None, {"origin": BASE}),
        ("guess", {"origin": BASE}),
        ("m:" + "AAAA" * 12, {"origin": BASE}),
        (found[1], {"origin": "https://evil.example"}),
        (found[1], {"origin": BASE, "sec-fetch-site": "cross-site"}),
        (found[1], {"origin": "null"}),
        (found[1], {}),
    ):
        data = {**FORMS[path], **({} if csrf is None else {"csrf": csrf})}
        assert (await ruth.client.post(target, data=data, headers=headers)).status_code == 403, (csrf, headers)
    assert await state(connection) == before


async def state(connection: "asyncpg.Connection[asyncpg.Record]") -> list[Any]:
    counted = "audit_log", "tokens", "webhooks", "jobs", "deliveries", "sign_in_links", "settings"
    return [await connection.fetchval(f"SELECT count(*) FROM {table}") for table in counted]


# What happens behind the pages


async def subscribe(person: Browser, url: str = "https://example.com/hook", **fields: Any) -> str:
    made = await person.post("/webhooks", url=url, types="*", **fields)
    [path] = set(re.findall(r'data-once="/webhooks/([^"]+)"', made.text))
    return str(path)


def caller(owner: str) -> Any:
    from paddock.api.tokens import Caller

    return Caller(uuid4(), owner, "analyst", owner)


async def tell(core: Core, subject: str = "tables/7", type: str = "table.compacted", **fields: Any) -> Any:
    async with core.db.transaction() as tx:
        await events.emit(core, tx, [OwnedEvent(NewEvent(type, subject, **fields), "ada")])
    [newest] = await facts.events_page(core.db, None, before=None, subject=subject, type=None, limit=1)
    return newest["id"]


async def end_next(core: Core, outcome: str, message: str = "The receiver answered 500.") -> None:
    link = core.link(internal=True)
    registered = await link.register(wire.Register(worker_id="inside", version="1", kinds=[WEBHOOK.name]))
    claimed = await link.claim(wire.Claim(session=registered.session, claim_id=uuid4(), kinds=[WEBHOOK.name], limit=1))
    [job] = claimed.jobs
    failed = outcome != "done"
    item = wire.FinishItem(
        id=job.id,
        attempt_id=job.attempt_id,
        outcome=outcome,  # type: ignore[arg-type]
        result=None if failed else {"status": 204},
        error=wire.Error(code="webhook_unavailable", message=message, hint="Look there.") if failed else None,
    )
    await link.finish(wire.Finish(items=[item]))
