"""Where a dump goes on is kept as the key of a row, which is somebody's data: no answer and no page has it."""

import json
from base64 import b64encode
from pathlib import Path

import apsw
import pytest
from fastapi import FastAPI

from paddock.api.app import create_app
from paddock.config import Config
from paddock.dumps import running
from paddock.dumps.model import DumpPayload
from paddock.dumps.resources import DumpResources
from paddock.jobs.core import Core
from paddock.web import pages
from tests.api.conftest import Clients, serving
from tests.api.test_stream import watching
from tests.dumps.api.conftest import Played, Start
from tests.dumps.turning import Job, configured

KEY = "someone@example.com"
# Bytes of it that do not depend on where in a base64 text they begin are not all of it: so each way to begin.
TOLD = [KEY, *(b64encode(b" " * skip + KEY.encode()).decode()[4:-4] for skip in range(3))]


@pytest.fixture
def app(core: Core, config: Config) -> FastAPI:
    return create_app(core, config, routes=pages.routes())


async def saved_by_a_dump(folder: Path) -> dict[str, object]:
    """Of its first turn, which ends after a part."""
    shop = apsw.Connection(str(folder / "shop.db"))
    shop.pragma("journal_mode", "wal")
    shop.execute("CREATE TABLE people (mail TEXT PRIMARY KEY, note TEXT) WITHOUT ROWID; BEGIN")
    shop.executemany("INSERT INTO people VALUES (?, ?)", [(f"{KEY}/{n:05}", "x" * 100) for n in range(20_000)])
    shop.execute("COMMIT")
    shop.close()
    job = Job(DumpPayload(dump_id="export_20261116-093000_abc123", database="shop"))
    resources = DumpResources(configured(folder, dumps_slice_seconds=0.000001))
    while job.saved is None or not (job.saved.get("draft") or {}).get("cursor", {}).get("position", {}).get("place"):
        await running.run(job.turn(), resources)
    return job.saved


async def test_the_key_at_which_a_dump_goes_on_is_told_to_nobody(
    app: FastAPI, clients: Clients, core: Core, played: Played, start: Start, tmp_path: Path
) -> None:
    saved = await saved_by_a_dump(tmp_path)
    assert any(told in json.dumps(saved) for told in TOLD), "else this looks for nothing"
    id = await start()
    attempt = await played.claim()
    job = str(attempt.id)
    async with serving(app) as (_, address), watching(address, clients, "ada") as heard:
        assert await attempt.save(saved) == "accepted"
        assert await attempt.finish("again", delay_seconds=60) == "accepted"
        await heard.until(lambda: "pending" in heard.states(job))
    streamed = json.dumps(heard.messages)

    for name in ("ada", "grace", "root"):
        client = await clients(name)
        answers = [await client.get(path) for path in _paths(id, job)]
        assert [answer.status_code for answer in answers] == [200] * len(answers), [str(one.url) for one in answers]
        text = "".join(answer.text for answer in answers) + streamed
        assert str(saved["point_in_time"]) in text, "what is meant to be seen is"
        assert not [told for told in TOLD if told in text]


def _paths(id: str, job: str) -> list[str]:
    own = f"/api/jobs/{job}"
    api = ["/api/jobs?kind=dump:shop", own, f"{own}/timeline", f"{own}/logs", f"/export/jobs/{id}?v=2", "/export/jobs"]
    return [*api, "/dumps", f"/dumps/{id}", "/jobs", f"/jobs/{job}"]
