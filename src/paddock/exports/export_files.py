"""The files of an export that completed."""

from typing import TYPE_CHECKING

from paddock.config import Config
from paddock.exports.downloading import Downloadable, StoredFile
from paddock.exports.plain import Export
from paddock.jobs.errors import InfrastructureError, Refused
from paddock.storage.store import open_managed

if TYPE_CHECKING:
    from paddock.storage.drafts import Manifest
    from paddock.storage.store import Store


async def manifest_of(config: Config, export: Export) -> "tuple[Store, Manifest]":
    from paddock.storage.drafts import read_manifest

    if export.status != "completed" or export.manifest is None or export.manifest_sha256 is None:
        raise Refused(
            "export_not_ready",
            f"The export is {export.shown_status}: it has no files.",
            hint="Wait until it completed.",
        )
    store = open_managed(config)
    try:
        return store, await read_manifest(store, export.manifest, export.manifest_sha256)
    except InfrastructureError as problem:
        raise Refused(problem.code, problem.message, hint=problem.hint, status=503) from problem


async def files_of(config: Config, export: Export) -> Downloadable:
    store, manifest = await manifest_of(config, export)
    files = [StoredFile(part.name, manifest.key(part), part.rows, part.bytes, part.sha256) for part in manifest.files]
    return Downloadable(store, "export", export.id, files, export.name)
