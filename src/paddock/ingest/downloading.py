"""Published files to whoever may see them, with ranges; and the first rejected records of a batch."""

from typing import Literal

import msgspec
from starlette.responses import Response, StreamingResponse

from paddock.config import Config
from paddock.ingest import outputs
from paddock.ingest.records import LeftOut, decode_left_out
from paddock.ingest.runs import File
from paddock.jobs.errors import InfrastructureError, Refused
from paddock.jobs.model import JsonObject
from paddock.storage import ranges
from paddock.storage.drafts import DraftFile, Manifest, read_manifest
from paddock.storage.store import Store, open_managed

PARQUET = "application/vnd.apache.parquet"
NAMES = {"records": "records.parquet", "rejected": "rejected.parquet"}
SAMPLE = "rejected-sample.jsonl"

Part = Literal["records", "rejected"]


async def download(
    config: Config, file: File, part: Part, asked: str | None, if_range: str | None, *, head: bool = False
) -> Response:
    """`head`: only what is said of it. The tag is the sum of its bytes."""
    store, manifest = await _manifest(config, file)
    found = _part(manifest, NAMES[part])
    if found is None:
        raise Refused("not_found", "No record of this batch was rejected.", status=404)
    tag = f'"{found.sha256}"'
    sent = ranges.requested_range(asked, if_range, tag, found.bytes)
    name = f"{file.source}-{file.run_id}-{file.batch}-{NAMES[part]}"
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": tag,
        "Content-Disposition": f'attachment; filename="{name}"',
        **sent.headers,
    }
    if sent.status == 416:
        return Response(None, 416, sent.headers, PARQUET)
    if head:
        return Response(None, sent.status, headers, PARQUET)
    return StreamingResponse(store.stream(manifest.key(found), sent.start, sent.length), sent.status, headers, PARQUET)


async def rejected(config: Config, file: File) -> list[JsonObject]:
    """The first of them, with why: all are in `rejected.parquet`."""
    store, manifest = await _manifest(config, file)
    found = _part(manifest, SAMPLE)
    if found is None:
        return []
    lines = (await store.read(manifest.key(found))).split(b"\n")
    return [_rejected_json(decode_left_out(line)) for line in lines if line]


def _rejected_json(one: LeftOut) -> JsonObject:
    return {**msgspec.structs.asdict(one), "data": outputs.readable_json(bytes(one.data))}


async def _manifest(config: Config, file: File) -> tuple[Store, Manifest]:
    store = open_managed(config)
    try:
        return store, await read_manifest(store, file.manifest, file.sha256)
    except InfrastructureError as problem:
        raise Refused(problem.code, problem.message, hint=problem.hint, status=503) from problem


def _part(manifest: Manifest, name: str) -> DraftFile | None:
    return next((part for part in manifest.files if part.name == name), None)
