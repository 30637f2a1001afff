"""A dump's file from the managed store to whoever asked: whole, or from where their copy of it ends."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from urllib.parse import quote

import orjson
import structlog
from starlette.responses import RedirectResponse, Response, StreamingResponse

from paddock.config import Config
from paddock.dumps.dumps import Dump
from paddock.dumps.model import counts_key
from paddock.jobs.errors import InfrastructureError, Refused
from paddock.storage import ranges
from paddock.storage.store import open_managed

LINKS_LIVE = timedelta(minutes=5)

log = structlog.get_logger(__name__)


async def download(
    config: Config, dump: Dump, *, asked: str | None, if_range: str | None, redirect: bool, head: bool
) -> Response:
    if dump.status != "completed":
        raise Refused("job_not_completed", "job_not_completed", status=400)
    assert dump.size is not None
    headers = _headers(dump)
    if redirect and (link := await _link(config, dump)) is not None:
        return RedirectResponse(link, 307, headers={"Cache-Control": "private, no-store"})
    sent = ranges.requested_range(asked, if_range, headers["ETag"], dump.size)
    headers |= sent.headers
    if sent.status == 416:
        return Response(status_code=416, headers=headers)
    if head:
        return Response(None, sent.status, headers, dump.media_type)
    body = await _begun(_bytes(config, dump, sent.start, sent.length))
    return StreamingResponse(body, sent.status, headers, dump.media_type)


async def with_counts(config: Config, dump: Dump) -> Dump:
    """Of so many tables that its row does not name them, from the object beside its file. Older dumps have none."""
    named = dump.tables is not None or not dump.table_count
    if named or dump.status != "completed" or dump.live is not None or not config.has_store:
        return dump
    try:
        return replace(dump, tables=orjson.loads(await open_managed(config).read(counts_key(dump.key or ""))))
    except InfrastructureError as problem:
        log.warning("dump_counts_unread", dump=dump.id, error=problem.message)
        return dump


def _headers(dump: Dump) -> dict[str, str]:
    return {
        "Accept-Ranges": "bytes",
        # Of the bytes themselves, and so strong.
        "ETag": f'"{dump.digest}"',
        "Content-Disposition": disposition(dump.file_name or dump.id),
        "Cache-Control": "private, no-store",
    }


def disposition(name: str) -> str:
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\%/' else "_" for c in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


async def _link(config: Config, dump: Dump) -> str | None:
    """None: the store has no links, or the file is several objects there."""
    if dump.objects:
        return None
    try:
        return await open_managed(config).sign(dump.key or "", LINKS_LIVE)
    except InfrastructureError as problem:
        raise _unavailable(problem) from problem


async def _bytes(config: Config, dump: Dump, start: int, length: int) -> AsyncIterator[bytes]:
    from paddock.storage.parts import read

    assert dump.key is not None
    assert dump.size is not None
    async for chunk in read(
        open_managed(config), dump.key, dump.objects or 0, dump.part_size or 0, dump.size, start, length
    ):
        yield chunk


async def _begun(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """With its first chunk at hand: a store that is away, or lost the file, is an answer and no broken promise."""
    try:
        first = await anext(chunks, b"")
    except InfrastructureError as problem:
        raise _unavailable(problem) from problem

    async def rest() -> AsyncIterator[bytes]:
        yield first
        async for chunk in chunks:
            yield chunk

    return rest()


def _unavailable(problem: InfrastructureError) -> Refused:
    return Refused(problem.code, problem.message, hint=problem.hint, status=503)
