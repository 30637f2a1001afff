"""Plain exports by the API, and their jobs ended by the test."""

from typing import Any
from uuid import UUID

import httpx2

from paddock.config import Config
from paddock.exports import plain
from paddock.exports.plain import Export
from paddock.jobs.core import Core
from paddock.storage.drafts import Draft, DraftFile, new_draft_id
from paddock.storage.store import open_store
from tests.playing import Attempt, worker
from tests.snapshots.making import payload_of, result


async def ask(client: httpx2.AsyncClient, **body: Any) -> httpx2.Response:
    return await client.post("/api/exports", json={"engine": "local", "sql": "SELECT 1 AS a", **body})


async def asked(client: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await ask(client, **body)
    assert answer.status_code == 202, answer.text
    made: dict[str, Any] = answer.json()["data"]
    return made


async def claim(core: Core) -> Attempt:
    """The only export that waits; cleanups before it are done at once."""
    while True:
        attempt = await (await worker(core)).claim_one("export")
        if attempt.job.cleanup_of is None:
            return attempt
        await attempt.finish()


async def complete(core: Core, **fields: Any) -> str:
    return await (await claim(core)).finish("done", result=result(**fields))


async def fail(core: Core) -> None:
    await (await claim(core)).finish("permanent")


async def look(core: Core, made: dict[str, Any]) -> Export:
    found = await plain.get(core.db, UUID(made["id"]))
    assert found is not None
    return found


async def complete_with_files(core: Core, config: Config, **contents: bytes) -> None:
    """As an engine that writes its files itself leaves them: without a sum of their bytes."""
    attempt = await claim(core)
    draft = Draft(open_store(config.object_store), payload_of(attempt)["output"], new_draft_id())
    for name, content in contents.items():
        await draft.store.put(f"{draft.prefix}/{name}.csv", content)
        await draft.adopt(DraftFile(f"{name}.csv", 1, len(content), None))
    sealed = await draft.seal({"format": "csv"})
    facts = {"rows": sealed.rows, "bytes": sealed.bytes, "files": sealed.files}
    await attempt.finish("done", result=result(**facts, manifest=sealed.manifest, sha256=sealed.sha256))
