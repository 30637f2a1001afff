"""`examples/ingest` as people run it: an ingester over a paged HTTP API, and two hooks."""

import importlib.util
import itertools
import sys
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import HTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from paddock.ingest import fetching, runs
from paddock.ingest.model import FetchPayload
from paddock.ingest.resources import IngestResources
from paddock.ingest.trying import turn_of
from paddock.jobs.outcomes import TransientFailure
from tests.ingest.conftest import Bench

GUIDE = Path(__file__).parents[2] / "docs" / "ingest.md"
EXAMPLE = Path(__file__).parents[2] / "examples" / "ingest"


@dataclass
class Api:
    module: Any
    url: str

    def busy_at(self, request: int) -> None:
        """The next request has this number; every tenth is told to come later."""
        self.module.requests = itertools.count(request)


@pytest.fixture
def api() -> Iterator[Api]:
    spec = importlib.util.spec_from_file_location("orders_api", EXAMPLE / "orders_api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with HTTPServer(("127.0.0.1", 0), module.Orders) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield Api(module, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        serving.join()


def configure(bench: Bench, api: Api) -> None:
    """As its paddock.toml says, with this Python and this address."""
    tables = tomllib.loads((EXAMPLE / "paddock.toml").read_text())["ingest"]
    for entry in (*tables["sources"].values(), *tables["hooks"].values()):
        assert entry["command"][0] == "python3"
        entry["command"][0], entry["folder"] = sys.executable, str(EXAMPLE)
    tables["sources"]["orders"]["config"]["url"] = api.url
    bench.sources, bench.hooks = tables["sources"], tables["hooks"]
    bench._configure()


async def test_a_run_publishes_what_the_shop_has_and_a_second_one_goes_on(bench: Bench, api: Api) -> None:
    configure(bench, api)
    run = await bench.run("orders")
    assert (run.status, run.error, run.next_batch) == ("completed", None, 3)
    [published] = (await runs.counts(bench.core.db, run)).values()
    assert (published["records"], published["passed"], published["rejected"]) == (250, 245, 5)
    assert "3 of 3 batches published, 245 records, 5 rejected" in GUIDE.read_text()
    rows = await bench.rows("orders")
    assert {row["customer"] for row in rows} == {f"c{n}" for n in range(17)}
    assert all(row["amount"] > 0 and "add-region" in row["features"] for row in rows)
    assert (await bench.run("orders")).fetched == 0


async def test_a_shop_that_is_busy_is_asked_later(bench: Bench, api: Api) -> None:
    configure(bench, api)
    api.busy_at(10)
    payload = FetchPayload(run_id=str(uuid4()), source="orders", batch=0, batch_size=10)
    outcome = await fetching.run(turn_of(payload), IngestResources(bench.config))
    assert isinstance(outcome, TransientFailure)
    assert outcome.error.code == "try_later"
