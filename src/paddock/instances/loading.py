"""What an instance server is told to load: the tables of the mapping's version, and for each file where to read it."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from paddock.config import Config
from paddock.db.pool import Database
from paddock.exports import mappings, snapshot_states
from paddock.exports.mapping import Definition
from paddock.exports.snapshot_states import Snapshot, SnapshotPart
from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.model import JsonObject
from paddock.storage.drafts import Manifest, read_manifest
from paddock.storage.store import Store, open_managed

LINKS_LIVE = timedelta(minutes=15)
AT_ONCE = 8


class CannotLoad(Exception):
    """By a cause of the table of ends."""

    def __init__(self, cause: str, message: str | None = None) -> None:
        super().__init__(message or cause)
        self.cause = cause
        self.message = message


async def load_body(db: Database, config: Config, snapshot: Snapshot) -> JsonObject:
    """The body of `POST /load`, with fresh links. A store that is away raises its transient error."""
    mapping = await mappings.get(db, snapshot.mapping_id, snapshot.mapping_version)
    if mapping is None:
        raise CannotLoad("manifest_missing", "The mapping that the snapshot was made from is gone.")
    store = open_managed(config)
    parts = await snapshot_states.parts(db, snapshot)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(part: SnapshotPart) -> tuple[tuple[str, str], JsonObject]:
        async with gate:
            return (part.section, part.name), await _files(store, part)

    files = dict(await asyncio.gather(*(one(part) for part in parts)))
    return {"nodes": _nodes(mapping.definition, files), "edges": _edges(mapping.definition, files)}


async def _files(store: Store, part: SnapshotPart) -> JsonObject:
    if part.manifest is None or part.manifest_sha256 is None:
        raise CannotLoad("manifest_missing", f"{part.name}: the snapshot does not name its files.")
    try:
        manifest = await read_manifest(store, part.manifest, part.manifest_sha256)
    except PermanentRunnerError as problem:
        changed = problem.code in ("manifest_changed", "manifest_too_new")
        raise CannotLoad(
            "manifest_changed" if changed else "manifest_missing", f"{part.name}: {problem.message}"
        ) from None
    return {"rows": manifest.rows, "files": await _places(store, manifest)}


async def _places(store: Store, manifest: Manifest) -> Sequence[JsonObject]:
    found = []
    for file in manifest.files:
        facts: JsonObject = {"sha256": file.sha256, "bytes": file.bytes, "rows": file.rows}
        key = manifest.key(file)
        if store.local is not None:
            found.append({**facts, "path": str(store.local.absolute() / key)})
            continue
        link = await store.sign(key, LINKS_LIVE)
        if link is None:
            raise CannotLoad("file_missing", f"The store {store.url} gives no links that an instance could read.")
        found.append({**facts, "url": link})
    return found


def _nodes(definition: Definition, files: dict[tuple[str, str], JsonObject]) -> list[JsonObject]:
    return [
        {
            "label": node.label,
            "key": {"name": node.primary_key.name, "type": node.primary_key.type},
            "properties": [{"name": one.name, "type": one.type} for one in node.properties],
            **files["nodes", node.label],
        }
        for node in definition.nodes
    ]


def _edges(definition: Definition, files: dict[tuple[str, str], JsonObject]) -> list[JsonObject]:
    return [
        {
            "type": edge.type,
            "from": edge.from_node,
            "to": edge.to_node,
            "properties": [{"name": one.name, "type": one.type} for one in edge.properties],
            **files["edges", edge.type],
        }
        for edge in definition.edges
    ]
