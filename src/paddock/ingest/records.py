"""The records of a batch between two steps: lines of JSON in a draft, one file for those that go on and one for the others."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeVar

import msgspec

from paddock.jobs.errors import PermanentRunnerError

if TYPE_CHECKING:
    from pathlib import Path

    from paddock.ingest.launching import StepFolder
    from paddock.storage.drafts import DraftFile, Manifest
    from paddock.storage.scratch import Scratch, ScratchFile
    from paddock.storage.store import Store

RECORDS, REJECTED = "records.jsonl", "rejected.jsonl"
Outcome = Literal["rejected", "error"]


class StoredRecord(msgspec.Struct, omit_defaults=True, gc=False):
    position: int
    stream: str
    id: str
    data: msgspec.Raw
    # By the name of the hook that gave them.
    features: dict[str, msgspec.Raw] = {}

    @property
    def key(self) -> tuple[str, str]:
        return self.stream, self.id


class LeftOut(msgspec.Struct, gc=False):
    """A record that does not go on, and why."""

    position: int
    stream: str
    id: str
    data: msgspec.Raw
    hook: str
    outcome: Outcome
    reason: str


class HookInput(msgspec.Struct, gc=False):
    id: str
    stream: str
    data: msgspec.Raw
    features: dict[str, msgspec.Raw]


_RECORD = msgspec.json.Decoder(StoredRecord)
_LEFT_OUT = msgspec.json.Decoder(LeftOut)
decode_left_out = _LEFT_OUT.decode
ENCODER = msgspec.json.Encoder()
AT_ONCE = 256 << 10
S = TypeVar("S", bound=msgspec.Struct)


def read_records(file: BinaryIO) -> Iterator[StoredRecord]:
    return map(_RECORD.decode, file)


def read_left_out(file: BinaryIO) -> Iterator[LeftOut]:
    return map(_LEFT_OUT.decode, file)


def write_lines(scratch: "Scratch", lines: Iterable[msgspec.Struct]) -> "ScratchFile":
    """The caller removes it. `rows` of the file says how many."""
    file = scratch.new(".jsonl")
    pending = bytearray()
    try:
        for line in lines:
            ENCODER.encode_into(line, pending, -1)
            pending += b"\n"
            file.rows += 1
            if len(pending) >= AT_ONCE:
                file.write(pending)
                pending.clear()
        file.write(pending)
        file.close()
    except BaseException:
        file.remove()
        raise
    return file


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """The files of a manifest on this machine, below a private folder."""

    records: "Path"
    rejected: "Path | None"
    counted: int


async def fetch(store: "Store", manifest: "Manifest", folder: "StepFolder") -> LocalCopy:
    """Checked against the sums that the manifest has."""
    found: dict[str, Path] = {}
    for part in manifest.files:
        if part.name in (RECORDS, REJECTED):
            found[part.name] = folder.path / part.name
            await _copy(store, manifest.key(part), found[part.name], part, folder)
    rows = sum(part.rows for part in manifest.files if part.name == RECORDS)
    return LocalCopy(found[RECORDS], found.get(REJECTED), rows)


async def _copy(store: "Store", key: str, path: "Path", part: "DraftFile", folder: "StepFolder") -> None:
    import asyncio
    import hashlib

    from paddock.storage.scratch import room

    folder.take(part.bytes)
    digest = hashlib.sha256()
    with room(), path.open("xb") as file:
        async for chunk in store.stream(key):
            digest.update(chunk)
            await asyncio.to_thread(file.write, chunk)
    if part.sha256 is not None and digest.hexdigest() != part.sha256:
        raise PermanentRunnerError(
            f"'{key}' in the store {store.url} is not the file that an earlier step wrote.",
            code="file_changed",
            hint="Somebody changed the store's files. Run the source again.",
        )


def each(path: "Path", read: Callable[[BinaryIO], Iterator[S]]) -> Iterator[S]:
    with path.open("rb") as file:
        yield from read(file)
