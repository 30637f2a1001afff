"""Thousands of odd requests made from the OpenAPI document, as admin and as analyst: no 5xx, ever."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from prometheus_client import CollectorRegistry
from schemathesis import APIOperation
from schemathesis.core.result import Ok

from paddock import doctor
from paddock.api.access import Role
from paddock.api.app import create_app
from paddock.api.server import Server, listen
from paddock.api.tokens import everything
from paddock.background import declared
from paddock.config import Config
from paddock.dumps import removing
from paddock.dumps.kinds import dump_kinds
from paddock.dumps.settings import DumpSettings
from paddock.exports.kinds import DESCRIBE, EXPORT
from paddock.exports.removing import REMOVE
from paddock.ingest import kinds as ingest_kinds
from paddock.ingest.settings import IngestSettings
from paddock.jobs import asking
from paddock.jobs.bulk import BULK
from paddock.jobs.core import open_core
from paddock.jobs.kinds import Kinds
from paddock.jobs.probe import PROBE
from paddock.metrics import Metrics
from tests.conftest import Server as Postgres
from tests.examples import examples
from tests.kinds import TEST_KINDS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    # A library's habit, not ours: it names its own deprecated entry points.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

# A stream never ends; its own tests drive it. A wait only takes time.
NOT_DRIVEN = ("/api/stream", "/metrics")
EXAMPLES = examples(10)
SHOP = {"type": "sqlite", "path": "shop.db", "owners": ["fuzz"]}
NUMBERS = {"command": ["true"], "owners": ["fuzz"]}
CONFIG = Config().with_settings(
    DumpSettings(databases={"shop": SHOP}), IngestSettings(sources={"string": NUMBERS, "numbers": NUMBERS})
)


@contextmanager
def running(postgres: Postgres, role: Role) -> Iterator[tuple[str, str]]:
    """The app on a thread of its own: Schemathesis drives it from outside, synchronously."""
    ready = threading.Event()
    found: list[str] = []
    server: list[Server] = []

    async def main() -> None:
        dsn = await postgres.create_database(f"schemathesis_{role}", "paddock_template")
        own = [*dump_kinds(CONFIG), *removing.KINDS, *declared.internal_kinds(CONFIG)]
        own += [*ingest_kinds.step_kinds(CONFIG), *ingest_kinds.internal_kinds(CONFIG)]
        kinds = Kinds([*TEST_KINDS, BULK, PROBE, EXPORT, DESCRIBE, REMOVE, *own])
        async with open_core(dsn, kinds, metrics=Metrics(CollectorRegistry())) as core:
            await declared.at_start(core, CONFIG)
            app = create_app(core, CONFIG, routers=[doctor.router()])
            _, secret = await app.state.plane.tokens.create(everything("fuzz", role), actor="test")
            bound = listen("127.0.0.1", 0)
            bound.listen()  # who comes before the server is ready waits
            server.append(Server(app, CONFIG))
            server[0].turn_to(app)
            found.extend([f"http://127.0.0.1:{bound.getsockname()[1]}", secret])
            ready.set()
            await server[0].serve(sockets=[bound])

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(60)
        yield found[0], found[1]
    finally:
        server[0].should_exit = True
        thread.join()


@pytest.mark.examples
@pytest.mark.parametrize("role", ["admin", "analyst"])
def test_no_request_makes_a_server_error(postgres: Postgres, role: Role, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "WORKER_SECONDS", 0.0)  # there is none to wait for
    with running(postgres, role) as (address, secret):
        schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
        driven = 0
        for result in schema.get_all_operations():
            assert isinstance(result, Ok)
            operation = result.ok()
            if operation.path not in NOT_DRIVEN:
                drive(operation, secret)
                driven += 1
        assert driven > 40


def drive(operation: APIOperation[Any, Any, Any, Any], secret: str) -> None:
    @given(case=operation.as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def once(case: Any) -> None:
        if case.query:
            case.query.pop("wait", None)
        answer = case.call(headers={"Authorization": f"Bearer {secret}"}, timeout=60)
        # Somebody in there switches drain mode on, sooner or later.
        draining = answer.status_code == 503 and _code(answer) == "draining"
        assert answer.status_code < 500 or draining, (
            f"{operation.label}: {answer.status_code}\n{case.as_curl_command()}"
        )

    once()


def _code(answer: Any) -> Any:
    error = answer.json()["error"]
    if isinstance(error, dict):
        return error["code"]
    told = answer.headers["x-error-code"]  # as often as it was sent
    return told[0] if isinstance(told, list) else told
