"""The files of a ready snapshot under the names they are downloaded by, and the manifest that tells what they are."""

import hashlib

import orjson

from paddock.config import Config
from paddock.db.pool import Database
from paddock.exports import snapshot_states
from paddock.exports.downloading import Downloadable, StoredFile
from paddock.exports.snapshot_states import Snapshot
from paddock.jobs.model import JsonObject
from paddock.storage.store import open_managed

MANIFEST = "manifest.json"
_WRITTEN = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z


async def files_of(config: Config, db: Database, snapshot: Snapshot, only: str | None = None) -> Downloadable:
    """With `only` it need not have others than the file of that name, and reads no more of the store than that takes."""
    store = open_managed(config)
    manifest = await snapshot_states.manifest(db, snapshot, store, None if only == MANIFEST else only)
    files = [
        StoredFile(file["name"], file["key"], file["rows"], file["bytes"], file["sha256"])
        for part in manifest["parts"]
        for file in part.get("files", ())
    ]
    if only in (None, MANIFEST):
        files.insert(0, _composed(manifest))
    return Downloadable(store, "snapshot", snapshot.id, files, snapshot.name)


def _composed(manifest: JsonObject) -> StoredFile:
    """The same bytes whenever it is asked for: a download of it can be resumed."""
    content = orjson.dumps(manifest, option=_WRITTEN)
    return StoredFile(MANIFEST, "", None, len(content), hashlib.sha256(content).hexdigest(), content)
