"""What every request passes: ids, hosts, headers, metrics."""

import re

import httpx2
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Gauge
from pydantic import SecretStr

from paddock.api.app import create_app, create_internal_app, create_metrics_app
from paddock.api.edge import allowed_hosts, host_name
from paddock.api.kinds_seen import naming_labels
from paddock.config import Config
from paddock.ingest import figures
from paddock.jobs.core import Core
from paddock.metrics import Metrics
from tests.api.conftest import BASE, Clients


def client_of(app: FastAPI) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE)


async def test_every_answer_has_a_request_id_and_keeps_a_sensible_one(
    clients: Clients, ada: httpx2.AsyncClient
) -> None:
    worker = await clients("worker")
    for answer in (
        await ada.get("/api/jobs"),
        await ada.get("/nonesuch"),
        await ada.get("/health"),
        await ada.post("/api/jobs", content=b"x" * (2 << 20)),
        await worker.post("/internal/jobs/claim"),
    ):
        assert len(answer.headers["x-request-id"]) == 32
    assert (await ada.get("/health", headers={"X-Request-Id": "abc-1.2:3"})).headers["x-request-id"] == "abc-1.2:3"
    for odd in ("", "x" * 65, "a b", "<script>", "a\u00e4"):
        answer = await ada.get("/health", headers={b"X-Request-Id": odd.encode("latin-1")})
        assert len(answer.headers["x-request-id"]) == 32


async def test_answers_carry_security_headers(ada: httpx2.AsyncClient) -> None:
    headers = (await ada.get("/api/jobs")).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


async def test_on_loopback_only_known_hosts_are_answered(core: Core) -> None:
    app = create_app(core, Config(allowed_hosts=("paddock.lan",)), host="127.0.0.1")
    async with client_of(app) as client:
        for host, status in {
            "localhost": 200,
            "localhost:8080": 200,
            "127.0.0.1:8080": 200,
            "[::1]:8080": 200,
            "LOCALHOST": 200,
            "paddock.lan:8080": 200,
            "evil.example": 400,
            "localhost.evil.example": 400,
            "": 400,
        }.items():
            assert (await client.get("/health", headers={"Host": host})).status_code == status, host


def test_which_hosts_are_known() -> None:
    assert allowed_hosts(Config(), "0.0.0.0") is None, "behind a service every name is right"
    assert allowed_hosts(Config(), None) is None
    assert allowed_hosts(Config(public_url="https://paddock.example"), "127.0.0.1") == frozenset(
        {"localhost", "127.0.0.1", "::1", "paddock.example"}
    )
    assert host_name("[::1]:80") == "::1"
    assert host_name("::1") == "::1"


async def test_metrics_are_open_or_ask_for_their_own_token(core: Core) -> None:
    async with client_of(create_app(core, Config())) as client:
        answer = await client.get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain")
    guarded = Config(metrics_token=SecretStr("scrape-me"))
    core.metrics = Metrics(CollectorRegistry())
    async with client_of(create_app(core, guarded)) as client:
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers={"Authorization": "Bearer wrong"})).status_code == 401
        assert (await client.get("/metrics", headers={"Authorization": "Bearer scrape-me"})).status_code == 200


async def test_metrics_that_anybody_may_read_name_no_source_and_no_catalog(core: Core) -> None:
    """And what only looks like such a label stays."""
    core.metrics = Metrics(CollectorRegistry())
    for name, labels in (("rows", ["outcome", "source"]), ("tables", ["catalog"]), ("slots", ["resource"])):
        gauge = Gauge(f"paddock_test_{name}", "Of this test.", labels, registry=core.metrics.registry)
        gauge.labels(*(f"{label} of the payroll" for label in labels)).set(1)

    def shown(text: str) -> set[str]:
        return set(re.findall(r"paddock_test_(\w+)\{", text))

    async with client_of(create_app(core, Config())) as client:
        text = (await client.get("/metrics")).text
        assert shown(text) == {"slots"}
    guarded = Config(metrics_token=SecretStr("scrape-me"))
    async with client_of(create_app(core, guarded)) as client:
        answer = await client.get("/metrics", headers={"Authorization": "Bearer scrape-me"})
        assert shown(answer.text) == {"rows", "tables", "slots"}


async def test_every_label_that_names_a_configured_thing_is_declared() -> None:
    assert set(naming_labels()) == {"catalog", "source"}
    assert {"source"} <= set(figures.WAITING._labelnames) & set(figures.BATCHES._labelnames)


async def test_requests_are_counted_by_route_template(ada: httpx2.AsyncClient, core: Core) -> None:
    await ada.get("/api/jobs/019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7")
    await ada.get("/wp-login.php")

    text = (await ada.get("/metrics")).text
    assert 'paddock_http_requests_total{method="GET",route="/api/jobs/{job_id}",status="404"} 1.0' in text
    assert 'route="unmatched"' in text
    assert "wp-login" not in text


async def test_the_workers_calls_are_counted_by_route_too(core: Core, ada: httpx2.AsyncClient) -> None:
    await ada.post("/internal/sessions/nobody/beat", json={})
    text = (await ada.get("/metrics")).text
    assert 'route="/internal/sessions/{session}/beat"' in text


async def test_internal_and_metrics_can_have_ports_of_their_own(core: Core) -> None:
    app = create_app(core, Config(internal_port=8081, metrics_port=8082))
    async with client_of(app) as client:
        assert (await client.post("/internal/jobs/claim")).status_code == 404
        assert (await client.get("/metrics")).status_code == 404
    async with client_of(create_internal_app(app)) as client:
        assert (await client.post("/internal/jobs/claim")).status_code == 401
        assert (await client.get("/api/jobs")).status_code == 404
    async with client_of(create_metrics_app(app)) as client:
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/api/jobs")).status_code == 404


async def test_health_says_when_the_process_no_longer_works(app: FastAPI, ada: httpx2.AsyncClient) -> None:
    assert (await ada.get("/ready")).status_code == 200
    app.state.plane.healthy = lambda: False
    assert (await ada.get("/health")).status_code == 503
    app.state.plane.closing.set()
    assert (await ada.get("/ready")).status_code == 503
