"""What killed workers left in the managed store of dumps: drafts, states and open uploads that no dump names.

A folder in which a job is at work is not looked at. Elsewhere the file that its dump names stays, and all else that is
older than an hour goes; of a dump that is no more, everything.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import asyncpg

from paddock.config import Config
from paddock.db.pool import Database, statements
from paddock.dumps.model import counts_key, prefix_of
from paddock.jobs.model import JsonObject
from paddock.storage.parts import Parts, open_parts
from paddock.storage.store import TEMPORARY, Store, StoredObject, open_managed

SQL = statements("paddock.dumps.sql", "dumps.sql")
FOLDER = re.compile(r"exports/dump_([0-9]{8}-[0-9]{6}_[0-9a-z]{6})/.")
YOUNGEST = timedelta(hours=1)
AT_ONCE = 500


@dataclass
class Sweep:
    db: Database
    store: Store
    parts: Parts
    removed: int = 0
    bytes: int = 0
    uploads: int = 0

    async def folders(self, folders: Mapping[str, Sequence[StoredObject]]) -> None:
        # Asked after the listing: what was begun since is not in it, and what ended since is named.
        known = await self._existing_dumps([*folders])
        for id, entries in folders.items():
            row = known.get(id)
            if row is not None and (row["busy"] or row["going"]):
                continue
            key = None if row is None else row["key"]
            gone = [entry for entry in entries if key is None or not _of(key, entry)]
            if not gone:
                continue
            self.uploads += await self.parts.abort(prefix_of(id))
            await self.store.delete([entry.key for entry in gone if not TEMPORARY.search(entry.key)])
            self.removed += len(gone)
            self.bytes += sum(entry.size for entry in gone)

    async def _existing_dumps(self, ids: Sequence[str]) -> dict[str, asyncpg.Record]:
        return {row["id"]: row for row in await self.db.fetch(SQL["known_dumps"], ids)}


def _of(key: str, entry: StoredObject) -> bool:
    return f"{entry.key}/".startswith(f"{key}/") or entry.key == counts_key(key)


async def collect(db: Database, config: Config, *, youngest: timedelta = YOUNGEST) -> JsonObject:
    if not config.has_store:
        return {}
    store = open_managed(config)
    sweep = Sweep(db, store, open_parts(store))
    folders: dict[str, list[StoredObject]] = {}
    before = datetime.now(UTC) - youngest
    async for entry in store.list("exports", unfinished=True):
        match = FOLDER.match(entry.key)
        if match is not None and entry.modified < before:
            folders.setdefault(f"export_{match[1]}", []).append(entry)
    ids = sorted(folders)
    for start in range(0, len(ids), AT_ONCE):
        await sweep.folders({id: folders[id] for id in ids[start : start + AT_ONCE]})
    return {"removed": sweep.removed, "bytes": sweep.bytes, "uploads": sweep.uploads}
