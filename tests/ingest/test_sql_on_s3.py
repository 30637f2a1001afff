"""`paddock ingest sql` where the managed store is a bucket: DuckDB loads the view, and reads exactly what is published."""

from uuid import uuid4

import duckdb
import pytest
from obstore.fsspec import FsspecStore

from paddock.api.app import create_app
from paddock.ingest import runs
from paddock.ingest.answering import file_json
from paddock.ingest.views import view_of
from tests.ingest.conftest import Bench
from tests.storage.servers import Server

pytestmark = pytest.mark.slow


class OnBucket(Bench):
    url: str

    def environ(self) -> dict[str, str]:
        return {"PADDOCK_OBJECT_STORE": self.url}


async def test_the_view_of_a_source_loads_over_s3(
    bench: Bench, s3_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environ.items():
        monkeypatch.setenv(name, value)
    place = OnBucket(bench.core, bench.folder, bench.config)
    place.url = f"{s3_server.url}/{uuid4()}"
    place.source("numbers", config={"total": 5}, batch_size=3)
    for _ in range(2):
        assert (await place.run("numbers", begin="start")).status == "completed"
    plane = create_app(place.core, place.config).state.plane
    paths = [file_json(plane, file)["path"] for file in await runs.files(place.core.db, "numbers", limit=10)]
    assert len(paths) == 4
    assert all(path.startswith(f"{place.url}/ingest/numbers/") for path in paths)
    with duckdb.connect() as database:
        # DuckDB's own reader of S3 is an extension that is loaded from the net; this one is on the machine.
        database.register_filesystem(_bucket(s3_server))
        found = {}
        for every_version in (False, True):
            database.execute(view_of("numbers", paths, every_version=every_version))
            found[every_version] = database.execute('SELECT id::int FROM "numbers" ORDER BY 1').fetchall()
    assert [id for (id,) in found[False]] == [1, 2, 3, 4, 5]
    assert len(found[True]) == 10


def _bucket(server: Server) -> FsspecStore:
    return FsspecStore(
        "s3",
        endpoint=server.endpoint,
        region="us-east-1",
        access_key_id=server.environ["AWS_ACCESS_KEY_ID"],
        secret_access_key=server.environ["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True},
    )
