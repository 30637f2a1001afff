"""A snapshot with real files, and what tests do with an instance of it."""

import hashlib
import os
import signal
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from paddock.config import Config
from paddock.exports.snapshot_states import Snapshot
from paddock.jobs.core import Core
from paddock.storage.drafts import Draft, DraftFile, new_draft_id
from paddock.storage.store import open_managed
from tests.instances.world import make_mapping, until
from tests.playing import worker
from tests.snapshots.making import make_snapshot, now, payload_of, result

AIRPORTS = ["ZRH", "GRZ", "LYS", "OSL"]
ROUTES = [("ZRH", "GRZ"), ("GRZ", "LYS"), ("OSL", "ZRH")]
TABLES = {
    "Airport": pa.table({"code": AIRPORTS, "name": [code.title() for code in AIRPORTS]}),
    "ROUTE": pa.table({"origin": [source for source, _ in ROUTES], "target": [target for _, target in ROUTES]}),
}
WHOLE = [[len(AIRPORTS), len(ROUTES)]]


async def real_snapshot(core: Core, config: Config) -> Snapshot:
    """Plays the worker, as `ready_snapshot` does, with files that load."""
    made = await make_snapshot(core, await make_mapping(core), owner="ada", engine="local", role=None)
    store = open_managed(config)
    for attempt in await (await worker(core)).claim("export", limit=50):
        payload = payload_of(attempt)
        table = TABLES["ROUTE" if "ROUTE" in payload["output"] else "Airport"]
        written = BytesIO()
        pq.write_table(table, written)
        content = written.getvalue()
        draft = Draft(store, payload["output"], new_draft_id())
        await store.put(f"{draft.prefix}/part-0.parquet", content)
        sha256 = hashlib.sha256(content).hexdigest()
        await draft.adopt(DraftFile("part-0.parquet", table.num_rows, len(content), sha256))
        sealed = await draft.seal({"format": "parquet"})
        facts = {"bytes": sealed.bytes, "files": 1, "manifest": sealed.manifest, "sha256": sealed.sha256}
        assert await attempt.finish("done", result=result(table.num_rows, **facts)) == "accepted"
    found = await now(core, made.id)
    assert found.status == "ready"
    return found


async def rows(client: httpx2.AsyncClient, id: str, query: str) -> list[list[Any]]:
    answer = await client.post(f"/api/instances/{id}/query", json={"query": query})
    assert answer.status_code == 200, answer.text
    found: list[list[Any]] = answer.json()["data"]["rows"]
    return found


async def counted(client: httpx2.AsyncClient, id: str) -> list[list[Any]]:
    """WHOLE, if all of it is there."""
    [[airports]] = await rows(client, id, "MATCH (a:Airport) RETURN count(*)")
    [[routes]] = await rows(client, id, "MATCH ()-[r:ROUTE]->() RETURN count(*)")
    return [[airports, routes]]


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; none, once it is gone."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


class Held:
    """An instance's folder, seen by a test that holds its processes."""

    def __init__(self, root: Path, id: str) -> None:
        self.folder = root / id
        self._hold = self.folder / "hold"

    def hold(self, step: str) -> None:
        """Executions from now on."""
        (self.folder / "held").unlink(missing_ok=True)
        self._hold.write_text(step)

    def let_go(self) -> None:
        self._hold.unlink(missing_ok=True)

    def processes(self) -> list[psutil.Process]:
        """Those that begin in its folder, and their children: an engine has left the folder."""
        found: dict[psutil.Process, None] = {}
        for process in psutil.process_iter():
            try:
                if process.cwd().startswith(str(self.folder)):  # the one that loads is among its files
                    found |= dict.fromkeys([process, *process.children(recursive=True)])
            except (psutil.Error, OSError):
                continue
        return list(found)

    async def server(self) -> psutil.Process:
        async def look() -> psutil.Process | None:
            found = [one for one in self.processes() if any("held_server" in word for word in words_of(one))]
            return found[0] if found else None

        return await until("its server is there", look)

    async def stopped_child(self) -> psutil.Process:
        """The child that has stopped itself."""

        async def look() -> psutil.Process | None:
            for one in self.processes():
                try:
                    if one.status() == psutil.STATUS_STOPPED:
                        return one
                except psutil.Error:
                    continue
            return None

        return await until("a child has stopped", look)

    async def waits(self) -> None:
        """The server itself waits at the point."""

        async def look() -> bool:
            return (self.folder / "held").exists()

        await until("the server waits", look)


def kill(process: psutil.Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
