"""What pages are made of: words, folded JSON, assets, links below a root, the token of forms."""

import gzip
import json
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest
from fastapi import FastAPI
from starlette.requests import Request

from paddock.api import signin
from paddock.api.app import create_app
from paddock.config import Config
from paddock.jobs.core import Core
from paddock.web import assets, frame, pages, words
from paddock.web.frame import url_of
from paddock.web.json_tree import MOST_BYTES, json_tree

ODD = "</script><b>&amp;\"' \u202eרע 🐎 \\ " + "long" * 50


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0004, "1 ms"),
        (0.42, "0.4 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (185, "3 min 5 s"),
        (7500, "2 h 5 min"),
        (86_400 * 4 + 3 * 3600, "4 d 3 h"),
        (timedelta(hours=1), "1 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float | timedelta, text: str) -> None:
    assert words.duration(seconds) == text


def test_times_are_said_both_ways() -> None:
    now = datetime.now(UTC)
    assert words.ago(now - timedelta(minutes=3, seconds=20)) == "3 min ago"
    assert words.ago(now + timedelta(seconds=20.5)) == "in 20 s"
    assert words.ago(now + timedelta(days=7)) == "in 7 d"
    assert words.ago(now) == "now"
    assert words.ago(None) == words.exact(None) == ""


def test_a_sentence_shows_commands_and_times_and_no_markup() -> None:
    shown = words.prose("Run `paddock <b>` at 2026-11-15T09:30:00Z or <i>.")
    assert "<code>paddock &lt;b&gt;</code>" in shown
    assert '<time datetime="2026-11-15T09:30:00.000000Z" data-time="exact">2026-11-15 09:30:00 UTC</time>' in shown
    assert "<i>" not in shown
    assert words.prose("one ` alone") == "one ` alone"


@pytest.mark.parametrize("time", ["2026-02-30T00:00:00Z", "0000-01-01T00:00:00Z", "2026-11-15T99:00:00+00:00"])
def test_a_time_that_cannot_be_stays_the_text_it_is(time: str) -> None:
    assert words.prose(f"at {time} <b>") == f"at {time} &lt;b&gt;"
    assert words.with_plain_times(f"at {time}") == f"at {time}"


ID = "019a8b1e-4c10-7000-9d2c-6a1b2c3d4e5f"


@pytest.mark.parametrize(
    "value",
    [{}, [], None, ODD, {ODD: [ODD, {"a": 1.5}, [], {}, True]}, {"rows": [{"n": n} for n in range(300)]}],
)
def test_the_text_of_a_tree_is_the_json_it_shows(value: Any) -> None:
    drawn = str(json_tree(value))
    assert "<b>" not in drawn
    assert json.loads(unescape(re.sub(r"<[^>]*>", "", drawn))) == value


@pytest.mark.parametrize(
    ("name", "value", "place"),
    [
        ("export_id", ID, f"/exports/{ID}"),
        ("jobs", [ID], f"/jobs/{ID}"),
        ("retry_of", ID, f"/jobs/{ID}"),
        ("run", ID, f"/ingest/runs/{ID}"),
        ("about", f"snapshot:{ID}", f"/snapshots/{ID}"),
        ("about", "schedule:every night", "/schedules/every%20night"),
    ],
)
def test_what_names_something_leads_there(name: str, value: Any, place: str) -> None:
    assert f'<a href="/p{place}">' in str(json_tree({"inner": {name: value}}, lambda path: f"/p{path}"))


@pytest.mark.parametrize(
    "value", ["nonsense", "export:nonsense", "https://x", "schedule:", "schedule:..", "kind:a/b", 7]
)
def test_what_names_nothing_is_text(value: Any) -> None:
    assert "<a" not in json_tree({"export_id": value, "other": value})


def test_a_huge_document_is_shown_as_plain_text() -> None:
    drawn = json_tree({"text": "x" * MOST_BYTES})
    assert drawn.startswith('<div class="json plain">')


@pytest.fixture
def app(core: Core) -> FastAPI:
    return create_app(core, Config(), routes=pages.routes())


def client_of(app: FastAPI) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://paddock.test")


async def test_assets_are_kept_for_good_under_the_digest_of_their_content(app: FastAPI) -> None:
    async with client_of(app) as client:
        kept = await client.get(assets.path_of("style.css"))
        assert kept.status_code == 200
        assert "immutable" in kept.headers["cache-control"]
        assert kept.headers["content-encoding"] == "gzip"
        plain = await client.get(assets.path_of("style.css"), headers={"accept-encoding": "identity"})
        assert plain.content == kept.content
        assert "content-encoding" not in plain.headers

        for path in ("/static/style.css", "/static/0123456789ab/style.css"):
            other = await client.get(path)
            assert (other.status_code, other.headers["cache-control"]) == (200, "no-cache"), path
        assert (await client.get("/static/vendor/htmx.min.js")).headers["content-type"].startswith("text/javascript")
        for path in ("/static/", "/static/vendor", "/static/..%2fframe.py", "/static/../frame.py", "/static/none.js"):
            assert (await client.get(path)).status_code == 404, path


def test_scripts_import_only_what_is_there() -> None:
    found = assets.assets()
    for name, asset in found.items():
        if name.endswith(".js") and not name.startswith("vendor/"):
            for imported in re.findall(r'from "(\./[^"]+)"|import\("(\./[^"]+)"\)', asset.content.decode()):
                target = "".join(imported)[2:]
                folder = name.rpartition("/")[0]
                assert (f"{folder}/{target}" if folder else target) in found, f"{name} imports {target}"


@pytest.mark.parametrize(
    ("config", "headers", "path", "root"),
    [
        (Config(), {}, "/sign-in", ""),
        (Config(), {"x-forwarded-prefix": "/tools/paddock/"}, "/sign-in", "/tools/paddock"),
        (Config(), {"x-forwarded-prefix": "//evil.example"}, "/sign-in", ""),
        (Config(), {"x-forwarded-prefix": '/"><script>'}, "/sign-in", ""),
        (Config(public_url="http://paddock.test/tools"), {}, "/sign-in", "/tools"),
        (Config(public_url="http://paddock.test/tools"), {}, "/tools/sign-in", "/tools"),
        (Config(public_url="http://paddock.test/tools"), {"x-forwarded-prefix": "/other"}, "/sign-in", "/tools"),
    ],
)
async def test_links_lead_below_the_root_a_proxy_gives_us(
    core: Core, config: Config, headers: dict[str, str], path: str, root: str
) -> None:
    app = create_app(core, config, routes=pages.routes())
    async with client_of(app) as client:
        answer = await client.get(path, headers=headers)
        away = await client.get("/jobs?q=a%20b", headers=headers)
    assert answer.status_code == 200
    assert f'href="{root}/static/' in answer.text
    assert f'action="{root}/sign-in"' in answer.text
    assert f'name="paddock-root" content="{root}"' in answer.text
    assert away.headers["location"] == f"{root}/sign-in?next=%2Fjobs%3Fq%3Da%2520b"


async def test_a_public_url_with_a_path_is_an_origin_without_it(core: Core) -> None:
    app = create_app(core, Config(public_url="https://tools.example/paddock"), routes=pages.routes())
    async with client_of(app) as client:
        own = await client.post("/sign-in", data={"token": "?"}, headers={"origin": "https://tools.example"})
        foreign = await client.post("/sign-in", data={"token": "?"}, headers={"origin": "https://evil.example"})
    assert (own.status_code, foreign.status_code) == (401, 403)


def test_only_our_own_paths_become_links() -> None:
    request = Request({"type": "http", "headers": [], "path": "/"})
    assert url_of(request, "/jobs", kind="a b&c", status=None, tag=["x", "y"]) == "/jobs?kind=a+b%26c&tag=x&tag=y"
    for path in ("//evil.example", "https://evil.example", ""):
        with pytest.raises(ValueError, match="no path of ours"):
            url_of(request, path)


@pytest.mark.parametrize(("path", "link"), [("/jobs?kind=a", "/jobs?kind=a"), ("//evil.example", None)])
def test_the_way_back_from_a_refusal_is_a_page_of_ours(path: str, link: str | None) -> None:
    headers = [(b"host", b"paddock.test"), (b"referer", f"http://paddock.test{path}".encode())]
    assert frame._came_from(Request({"type": "http", "method": "POST", "headers": headers})) == link


def test_a_long_sentence_in_any_script_fits_into_its_cookie(app: FastAPI) -> None:
    request = Request({"type": "http", "app": app, "headers": [(b"host", b"paddock.test")], "path": "/"})
    [cookie] = frame.back(request, "/jobs", "🐎" * 500).headers.getlist("set-cookie")
    assert len(cookie) < 4_096
    assert unquote(cookie.partition(";")[0].partition("=")[2]) == "🐎" * 300


def test_the_token_of_a_form_looks_different_each_time_and_is_the_same() -> None:
    first, second = signin.masked("secret"), signin.masked("secret")
    assert first != second
    assert "secret" not in first
    assert signin.unmasked(first) == signin.unmasked(second) == "secret"
    for odd in ("m:", "m:x", "m:====", "m:" + "A" * 1000, "é", ""):
        assert signin.unmasked(odd) != "secret"


def test_a_page_is_small_on_its_way() -> None:
    """All that a first visit loads, charts included; the editor is loaded by the few pages that have one, and kept."""
    sizes = {
        name: len(asset.zipped or gzip.compress(asset.content))
        for name, asset in assets.assets().items()
        if not name.endswith(("LICENSE", "VERSIONS"))
    }
    editor = sizes.pop("vendor/codemirror.min.js")
    assert sum(sizes.values()) < 120_000
    assert editor < 150_000
