"""Exports of what lies in an object store, from the request to the file: killed, cancelled, refused, and told of."""

import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import DatabaseClock
from tests.exports.crash_scene import Scene, engine_children, kills, scene_in, until
from tests.exports.place import Place
from tests.exports.place import place as whole_place
from tests.exports.test_crashes import lease_ends
from tests.ports import free_ports
from tests.storage.servers import Server

pytestmark = pytest.mark.slow

REMOTE = "SELECT * FROM 'lake/rows/*.parquet' ORDER BY id"
SECRET = "a-secret-that-nobody-may-read"


@pytest.fixture(scope="module")
def lake(s3_server: Server, expected: pa.Table) -> str:
    """The rows in two files, as an object store has them; its URL."""
    from paddock.storage.store import open_store

    url = f"{s3_server.url}/{uuid4()}"
    store = open_store(url, environ=s3_server.environ)
    half = expected.num_rows // 2
    for number, part in enumerate([expected.slice(0, half), expected.slice(half)]):
        sink = BytesIO()
        pq.write_table(part, sink)
        store.backend.put(f"rows/{number}.parquet", sink.getvalue())
    return url


def source(name: str, url: str, credentials: Mapping[str, str], folder: Path, endpoint: str) -> str:
    """A table of paddock.toml; the credentials are files, as they are mounted."""
    text = f'[engines.local.remote.{name}]\nurl = "{url}?endpoint={endpoint}&region=us-east-1"\n'
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        (folder / f"{name}-{key}").write_text(credentials[key])
        text += f'credentials.{key}.file = "{folder}/{name}-{key}"\n'
    return text


@pytest.fixture
async def scene(tmp_path: Path, files: Path, dsn: str, lake: str, s3_server: Server) -> AsyncIterator[Scene]:
    more = source("lake", lake, s3_server.environ, tmp_path, s3_server.endpoint)
    async with scene_in(tmp_path, files, dsn, more=more) as opened:
        yield opened


async def test_a_runner_killed_while_it_fetches(scene: Scene, expected: pa.Table) -> None:
    points = ("fetching", "fetched", "fetched 2", "opened")
    scene.plan(*kills(points))
    async with scene.working():
        export = await scene.export(sql=REMOTE)
        for number, _ in enumerate(points, 1):
            await scene.crashed(export.job_id, number)
            assert scene.fetched(), "what it leaves behind"
            await scene.sees_nothing(export)
            await scene.run_now(export.job_id)
        done = await scene.completed(export)
        assert scene.fetched() == set()

    assert scene.planned() == 0
    assert (await scene.rows(done)).equals(expected)
    await scene.collect()
    assert scene.managed() == await scene.named(done)


async def test_a_worker_killed_while_it_fetches(clock: DatabaseClock, scene: Scene, expected: pa.Table) -> None:
    scene.plan("worker fetched 2")
    async with scene.doomed_worker() as doomed:
        export = await scene.export(sql=REMOTE)
        assert await doomed.wait() == -signal.SIGKILL
    assert {name.rpartition("/")[2] for name in scene.fetched()} <= {"0.parquet", "1.parquet"}
    assert scene.fetched()
    await lease_ends(scene, export.job_id, clock)
    async with scene.working():
        done = await scene.completed(export)
        assert scene.fetched() == set()

    assert (await scene.rows(done)).equals(expected)


async def test_cancelled_while_it_fetches(scene: Scene) -> None:
    scene.plan("hold fetched 2")
    async with scene.working():
        export = await scene.export(sql=REMOTE, to="daily")
        await scene.held()
        assert scene.fetched()

        async def told() -> dict[str, Any] | None:
            report = (await scene.job(export.job_id)).report or {}
            return report if report.get("fetched_files") == 1 else None

        report = await until("it is told what has arrived", told)
        assert (report["phase"], report["total_files"]) == ("fetching", 2)
        assert 0 < report["fetched_bytes"] < report["total_bytes"]
        assert report["percent"] == round(100 * report["fetched_bytes"] / report["total_bytes"], 1)

        await scene.cancel(export)
        assert (await scene.cleaned(export)).status == "completed"

        assert engine_children() == []
        assert scene.fetched() == set()
    await scene.sees_nothing(export)
    assert (await scene.look(export)).status == "cancelled"
    assert scene.managed() == set()
    assert await scene.locks() == []


async def test_a_source_that_does_not_answer_is_tried_again(
    tmp_path: Path, files: Path, dsn: str, lake: str, s3_server: Server
) -> None:
    [nobody] = free_ports(1)
    more = source("lake", lake, s3_server.environ, tmp_path, f"http://127.0.0.1:{nobody}")
    async with scene_in(tmp_path, files, dsn, more=more) as scene, scene.working():
        export = await scene.export(sql=REMOTE)
        job = await scene.crashed(export.job_id, 1)

        assert (job.status, job.error_code) == ("pending", "store_unavailable")
        assert lake in str(job.error_message)
        assert scene.fetched() == set()


@pytest.fixture(scope="module")
def place(lake: str, s3_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A whole Paddock with that source, and with the same one by a secret that is wrong."""
    folder = tmp_path_factory.mktemp("secrets")
    more = source("lake", lake, s3_server.environ, folder, s3_server.endpoint)
    wrong = {**s3_server.environ, "AWS_SECRET_ACCESS_KEY": SECRET}
    more += source("locked", lake, wrong, folder, s3_server.endpoint)
    with whole_place(more) as found:
        yield found


def test_from_the_request_to_the_file(place: Place, expected: pa.Table) -> None:
    made = place.paddock("export", REMOTE, "--engine", "local", "--to", "out.parquet")

    assert made.returncode == 0, made.stderr.decode()
    assert pq.read_table(place.folder / "out.parquet").equals(expected)


def test_by_the_api_as_an_export_and_as_questions(place: Place, expected: pa.Table) -> None:
    found = place.export(
        sql="SELECT count(*) AS n FROM read_parquet($path)", parameters={"path": "lake/rows/*.parquet"}
    )
    assert (found["status"], found["rows"]) == ("completed", 1), found

    asked = place.client.request("POST", "/api/engines/local/describe", body={"sql": REMOTE})["data"]
    assert [column["name"] for column in asked["columns"]] == expected.column_names


@pytest.mark.parametrize(
    ("sql", "code", "says"),
    [
        ("SELECT * FROM 'lake/rows/7.parquet'", "remote_not_found", lambda lake: f"rows/7.parquet in {lake}"),
        ("SELECT * FROM 'lake/none/*.csv'", "remote_not_found", lambda lake: f"none/*.csv in {lake}"),
        ("SELECT * FROM 'locked/rows/0.parquet'", "store_denied", lambda lake: lake),
        ("SELECT * FROM 'locked/rows/*.parquet'", "store_denied", lambda lake: lake),
        ("SELECT * FROM read_parquet('lake/' || 'rows/0.parquet')", "path_computed", lambda _: "computes the path"),
    ],
)
def test_what_cannot_be_fetched_ends_the_export_and_names_the_place(
    place: Place, lake: str, sql: str, code: str, says: Callable[[str], str]
) -> None:
    found = place.export(sql=sql)

    assert (found["status"], found["error"]["code"]) == ("failed", code), found["error"]
    assert says(lake) in found["error"]["message"]
    told = place.paddock("export", sql, "--engine", "local", "--to", "none.parquet")
    assert told.returncode == 1
    assert SECRET not in f"{found}{told.stdout!r}{told.stderr!r}{place.up.said()}"
