"""Pages of other origins: those that are named, below `/export/`, and without cookies."""

import httpx2
import pytest

from paddock.config import Config
from paddock.dumps.settings import DumpSettings
from tests.api.conftest import Clients

PAGE = {"Origin": "https://studio.example"}
PREFLIGHT = {**PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


@pytest.fixture
def config(config: Config) -> Config:
    return config.with_settings(
        config.of(DumpSettings).model_copy(update={"cors_origins": ("https://studio.example",)})
    )


async def test_a_page_of_a_named_origin_may_ask_and_read(clients: Clients, ada: httpx2.AsyncClient) -> None:
    stranger = await clients("stranger")
    asked = await stranger.options("/export/dump", headers=PREFLIGHT)
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-origin"] == "https://studio.example"
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert "Authorization" in asked.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in asked.headers

    listed = await ada.get("/export/jobs", headers=PAGE)
    assert listed.headers["access-control-allow-origin"] == "https://studio.example"
    assert "ETag" in listed.headers["access-control-expose-headers"]
    assert listed.headers["vary"] == "Origin"


async def test_it_may_read_why_it_was_refused(clients: Clients) -> None:
    refused = await (await clients("stranger")).get("/export/jobs", headers=PAGE)
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://studio.example"


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "https://studio.example.evil.example"])
async def test_a_page_of_another_origin_may_not(ada: httpx2.AsyncClient, origin: str) -> None:
    for answered in (
        await ada.options("/export/dump", headers={**PREFLIGHT, "Origin": origin}),
        await ada.get("/export/jobs", headers={"Origin": origin}),
    ):
        assert "access-control-allow-origin" not in answered.headers
        assert answered.headers["vary"] == "Origin"


async def test_other_paths_are_nobodys(ada: httpx2.AsyncClient) -> None:
    assert "access-control-allow-origin" not in (await ada.get("/api/jobs", headers=PAGE)).headers
    assert (await ada.options("/api/jobs", headers=PREFLIGHT)).status_code == 405


class TestNobody:
    @pytest.fixture
    def config(self, config: Config) -> Config:
        return config.with_settings(config.of(DumpSettings).model_copy(update={"cors_origins": ()}))

    async def test_without_origins_there_is_no_preflight(self, ada: httpx2.AsyncClient) -> None:
        assert (await ada.options("/export/dump", headers=PREFLIGHT)).status_code == 405
        assert "access-control-allow-origin" not in (await ada.get("/export/jobs", headers=PAGE)).headers


class TestEverybody:
    @pytest.fixture
    def config(self, config: Config) -> Config:
        return config.with_settings(config.of(DumpSettings).model_copy(update={"cors_origins": ("*",)}))

    async def test_a_star_is_any_origin(self, ada: httpx2.AsyncClient) -> None:
        answered = await ada.get("/export/jobs", headers={"Origin": "https://any.example"})
        assert answered.headers["access-control-allow-origin"] == "https://any.example"
