"""A ready snapshot as files: all of them as a zip, one with ranges, and a deletion that waits for whoever reads."""

import io
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from starlette.responses import StreamingResponse

from paddock.config import Config
from paddock.exports import downloading, snapshot_files
from paddock.exports.snapshot_states import Snapshot
from paddock.jobs.core import Core
from paddock.jobs.errors import Refused
from paddock.storage.drafts import Draft, DraftFile, new_draft_id
from paddock.storage.store import open_store
from tests.background.ticking import end_expired
from tests.conftest import DatabaseClock
from tests.mappings.conftest import ENGINES
from tests.snapshots.making import NAMES, claim, make_snapshot, now, payload_of, result

NODES = "nodes/Airport/part-00000.parquet"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(engines=ENGINES, object_store=str(tmp_path / "objects"))


async def ready(core: Core, config: Config, files: int = 2, **fields: Any) -> Snapshot:
    """Of two files a part, as an engine that writes them itself leaves them; each says whose it is."""
    snapshot = await make_snapshot(core, **fields)
    for name, attempt in (await claim(core)).items():
        draft = Draft(open_store(config.object_store), payload_of(attempt)["output"], new_draft_id())
        for n in range(files):
            content = f"{name} {n}".encode()
            await draft.store.put(f"{draft.prefix}/part-{n:05}.parquet", content)
            await draft.adopt(DraftFile(f"part-{n:05}.parquet", 5, len(content), None))
        sealed = await draft.seal({"columns": []})
        facts = {"bytes": sealed.bytes, "files": sealed.files, "manifest": sealed.manifest, "sha256": sealed.sha256}
        await attempt.finish("done", result=result(sealed.rows, **facts))
    return await now(core, snapshot.id)


async def test_it_is_a_zip_of_its_parts_and_the_manifest(ada: httpx2.AsyncClient, core: Core, config: Config) -> None:
    own = f"/api/snapshots/{(await ready(core, config)).id}"

    whole = await ada.get(f"{own}/download")
    head = await ada.head(f"{own}/download")

    assert whole.status_code == 200, whole.text
    assert int(head.headers["content-length"]) == len(whole.content)
    with zipfile.ZipFile(io.BytesIO(whole.content)) as found:
        assert found.testzip() is None
        assert set(found.namelist()) == {
            "manifest.json",
            *(
                f"{'nodes' if name.startswith('Air') else 'edges'}/{name}/part-0000{n}.parquet"
                for name in NAMES
                for n in (0, 1)
            ),
        }
        assert found.read(NODES) == b"Airport 0"
        manifest = orjson.loads(found.read("manifest.json"))
    assert manifest["parts"][0]["files"][0]["name"] == NODES
    assert manifest == (await ada.get(f"{own}/manifest?files=1")).json()["data"]
    listed = (await ada.get(f"{own}/files")).json()["data"]["files"]
    assert [file["name"] for file in listed] == zipfile.ZipFile(io.BytesIO(whole.content)).namelist()


@pytest.mark.parametrize("name", [NODES, "manifest.json"])
async def test_each_file_is_resumed_by_a_range(ada: httpx2.AsyncClient, core: Core, config: Config, name: str) -> None:
    path = f"/api/snapshots/{(await ready(core, config)).id}/download"

    whole = await ada.get(path, params={"file": name})
    rest = await ada.get(path, params={"file": name}, headers={"Range": "bytes=4-", "If-Range": whole.headers["etag"]})

    assert (rest.status_code, rest.content) == (206, whole.content[4:])
    assert (await ada.get(path, params={"file": "nodes/Airport/none"})).status_code == 404


async def test_a_part_keeps_its_own_name_and_the_whole_carries_the_snapshots(
    ada: httpx2.AsyncClient, core: Core, config: Config
) -> None:
    path = f"/api/snapshots/{(await ready(core, config, files=1, name='Routes')).id}/download"

    whole, part = await ada.head(path), await ada.head(path, params={"file": NODES})

    assert whole.headers["content-disposition"] == 'attachment; filename="Routes.zip"'
    assert part.headers["content-disposition"] == 'attachment; filename="part-00000.parquet"'


async def test_only_a_ready_one_and_ones_own(ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, core: Core) -> None:
    own = f"/api/snapshots/{(await make_snapshot(core)).id}"
    for path in ("download", "files"):
        assert (await ada.get(f"{own}/{path}")).json()["error"]["code"] == "snapshot_not_ready"
        assert (await bob.get(f"{own}/{path}")).status_code == 404


async def test_a_download_holds_up_its_deletion(ada: httpx2.AsyncClient, core: Core, config: Config) -> None:
    snapshot = await ready(core, config)
    found = await snapshot_files.files_of(config, core.db, snapshot)

    async def begun() -> Any:
        answer = await downloading.send(core.db, found, downloading.find(found, None, None), actor="ada")
        assert isinstance(answer, StreamingResponse)
        body: Any = answer.body_iterator
        assert await anext(body)
        return body

    body = await begun()
    refused = await ada.delete(f"/api/snapshots/{snapshot.id}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "snapshot_downloading")
    assert refused.json()["error"]["details"] == {"downloads": ["ada"]}

    assert [chunk async for chunk in body]
    assert (await ada.delete(f"/api/snapshots/{snapshot.id}")).status_code == 202
    with pytest.raises(Refused, match="is being deleted"):
        await begun()


async def test_the_end_of_its_time_waits_for_a_download_but_not_for_one_that_died(
    core: Core, config: Config, clock: DatabaseClock
) -> None:
    snapshot = await ready(core, config, ttl=timedelta(days=1))
    found = await snapshot_files.files_of(config, core.db, snapshot)
    await clock.advance(timedelta(days=2))
    answer = await downloading.send(core.db, found, downloading.find(found, None, None), actor="ada")
    assert isinstance(answer, StreamingResponse)
    body: Any = answer.body_iterator
    assert await anext(body)
    assert await end_expired(core, "snapshots") == 0

    await clock.advance(minutes=3)
    assert await end_expired(core, "snapshots") == 1
    assert [chunk async for chunk in body]
