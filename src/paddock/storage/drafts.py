"""Drafts: files that nobody sees until a job's finish names their manifest.

A draft is one start of a query, with a fresh id of its own; no name in it is ever used twice. Its manifest is written
last and only once, after every file was found whole in the store. The finish transaction that keeps the manifest's key
and sha256 is the only commit: a draft that was killed at any point before is garbage for `paddock.storage.leftovers`.
"""

import hashlib
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from paddock.jobs.errors import InfrastructureError, PermanentRunnerError
from paddock.jobs.model import JsonObject
from paddock.storage.failures import incomplete
from paddock.storage.scratch import ScratchFile
from paddock.storage.store import Store, check_key

MANIFEST = "_manifest.json"
VERSION = 1
OURS = frozenset({"version", "files", "rows", "bytes"})


def new_draft_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class DraftFile:
    """`sha256` is None where the engine wrote the file itself."""

    name: str
    rows: int
    bytes: int
    sha256: str | None
    facts: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a job's result keeps of a draft."""

    manifest: str
    sha256: str
    rows: int
    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class Manifest:
    prefix: str
    files: Sequence[DraftFile]
    rows: int
    bytes: int
    facts: JsonObject

    def key(self, part: DraftFile) -> str:
        return f"{self.prefix}/{part.name}"


class Draft:
    def __init__(self, store: Store, prefix: str, id: str) -> None:
        self.store = store
        self.id = id
        self.prefix = check_key(f"{prefix}/{id}")
        # In the order in which they were begun: uploads may end in another.
        self._parts: dict[str, DraftFile | None] = {}

    async def add(self, file: ScratchFile, name: str, **facts: Any) -> DraftFile:
        """Uploads a closed file, then asks the store whether all of it is there. The file stays the caller's to remove."""
        file.close()
        part = DraftFile(name, file.rows, file.bytes, file.sha256, facts)
        key = self._begin(name)
        try:
            await self.store.upload(key, file.path, give=True)
            await self._check(key, part)
        except BaseException:
            del self._parts[name]
            raise
        self._parts[name] = part
        return part

    async def adopt(self, part: DraftFile) -> DraftFile:
        """A file that the engine itself wrote into this draft's prefix."""
        key = self._begin(part.name)
        try:
            await self._check(key, part)
        except BaseException:
            del self._parts[part.name]
            raise
        self._parts[part.name] = part
        return part

    async def seal(self, facts: JsonObject) -> Sealed:
        parts = [part for part in self._parts.values() if part is not None]
        if len(parts) != len(self._parts) or OURS & facts.keys():
            raise ValueError("A draft is sealed after its uploads, and its facts do not take the manifest's own names.")
        rows, size = sum(part.rows for part in parts), sum(part.bytes for part in parts)
        files = [_written(part) for part in parts]
        body = orjson.dumps({"version": VERSION, "files": files, "rows": rows, "bytes": size, **facts})
        key = f"{self.prefix}/{MANIFEST}"
        # Refused although it is ours: the store's first answer was lost and its client asked again.
        if not await self.store.create(key, body) and await self.store.read(key) != body:
            raise PermanentRunnerError(
                f"The draft {self.prefix} is already sealed, with other files.",
                code="draft_already_sealed",
                hint="Two runs wrote to one draft, which must not happen: please report it.",
            )
        return Sealed(key, hashlib.sha256(body).hexdigest(), rows, size, len(parts))

    async def discard(self) -> None:
        """As far as it goes: what stays, `leftovers` removes."""
        with suppress(InfrastructureError):
            await self.store.delete_below(self.prefix)

    def _begin(self, name: str) -> str:
        if name in self._parts or name == MANIFEST:
            raise ValueError(f"The draft has a file {name!r} already.")
        key = check_key(f"{self.prefix}/{name}")
        self._parts[name] = None
        return key

    async def _check(self, key: str, part: DraftFile) -> None:
        found = await self.store.size(key)
        if found != part.bytes:
            raise incomplete(
                f"'{key}' has {found or 0:,} bytes in the store {self.store.url} instead of {part.bytes:,}."
            )


async def read_manifest(store: Store, key: str, sha256: str) -> Manifest:
    body = await store.read(key)
    if hashlib.sha256(body).hexdigest() != sha256:
        raise PermanentRunnerError(
            f"The manifest '{key}' in the store {store.url} is not the one that the job wrote.",
            code="manifest_changed",
            hint="Somebody changed the store's files. Export again.",
        )
    content = orjson.loads(body)
    if content["version"] != VERSION:
        raise PermanentRunnerError(
            f"The manifest '{key}' has version {content['version']}, which this Paddock cannot read.",
            code="manifest_too_new",
            hint="Upgrade Paddock.",
        )
    return Manifest(
        prefix=key.rpartition("/")[0],
        files=[_read(file) for file in content["files"]],
        rows=content["rows"],
        bytes=content["bytes"],
        facts={name: value for name, value in content.items() if name not in OURS},
    )


def _written(part: DraftFile) -> JsonObject:
    return {"name": part.name, "rows": part.rows, "bytes": part.bytes, "sha256": part.sha256, **part.facts}


def _read(file: JsonObject) -> DraftFile:
    facts = dict(file)
    return DraftFile(facts.pop("name"), facts.pop("rows"), facts.pop("bytes"), facts.pop("sha256"), facts)
