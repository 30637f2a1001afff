"""Spooled results: Trino writes the rows as segments into a store and tells where they are.

Segments are fetched in parallel and given in order. Each says how many rows it holds and where they begin, so nothing
can be missing, doubled or exchanged unnoticed. They are acknowledged, which deletes them, only after their rows were
taken. The store is not Trino: it gets the headers that the segment names and nothing else of ours.
"""

import asyncio
import time
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin

import aiohttp
from yarl import URL

from paddock.engines.trino.answers import soon
from paddock.engines.trino.client import BUSY, MOST_REDIRECTS, REDIRECTS, TrinoClient, bounded_body
from paddock.engines.trino.decoding import BadPage
from paddock.jobs.errors import TransientResourceError

MOST_DAMAGED = 3
# Longer than a page's: it is larger, and a store may be slow. A store that sends nothing is given up sooner.
FETCH_SECONDS = 600.0
ACK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Segment:
    encoding: str
    offset: int
    rows: int
    size: int
    uncompressed: int | None
    data: bytes | None = field(repr=False)
    uri: str | None = field(repr=False)
    ack_uri: str | None = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)


class WrongSegments(TransientResourceError):
    """Rows that are not there or came twice. The query is run again; none of what came is kept."""

    code = "segments_wrong"

    def __init__(self, message: str) -> None:
        super().__init__(
            message, hint="The query is run again. If this goes on, Trino's log says more, under the query id."
        )


def segments_of(data: Mapping[str, Any], first: int) -> Sequence[Segment]:
    """Those of one page in the order of their rows, which must go on at `first` without a gap."""
    encoding = data.get("encoding")
    listed = data.get("segments")
    if not isinstance(encoding, str) or not isinstance(listed, list):
        raise BadPage("A page of a spooled result names no segments.")
    segments = sorted((_segment(encoding, one) for one in listed), key=lambda segment: segment.offset)
    for segment in segments:
        if segment.offset != first:
            what = "are missing" if segment.offset > first else "came twice"
            raise WrongSegments(f"Rows {what} in the spooled result: expected row {first}, got {segment.offset}.")
        first += segment.rows
    return segments


def _segment(encoding: str, given: Any) -> Segment:
    try:
        metadata = given["metadata"]
        inline = given["type"] == "inline"
        data = b64decode(given["data"], validate=True) if inline else None
        segment = Segment(
            encoding=encoding,
            offset=_count(metadata["rowOffset"]),
            rows=_count(metadata["rowsCount"]),
            size=_count(metadata["segmentSize"]),
            uncompressed=_count(metadata["uncompressedSize"]) if "uncompressedSize" in metadata else None,
            data=data,
            uri=None if inline else str(given["uri"]),
            ack_uri=None if inline else given.get("ackUri"),
            headers={name: ",".join(values) for name, values in (given.get("headers") or {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadPage("A segment of the spooled result is not described as Trino does.") from None
    if data is not None and len(data) != segment.size:
        raise BadPage(f"A segment of {segment.size:,} bytes arrived as {len(data):,}.")
    return segment


def _count(value: Any) -> int:
    number = int(value)
    if number < 0:
        raise ValueError("less than nothing")
    return number


async def fetch(client: TrinoClient, segment: Segment) -> bytes:
    """The segment as it was stored. A damaged transfer is repeated."""
    if segment.data is not None:
        return segment.data
    damaged = 0
    end = time.monotonic() + client.settings.patience_seconds
    while True:
        try:
            status, body = await _get(client, segment, str(segment.uri), segment.size + 1)
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            why = type(problem).__name__
        else:
            if status == 200 and len(body) == segment.size:
                return body
            if status == 200:
                damaged += 1
                why = f"{len(body):,} bytes instead of {segment.size:,}"
            elif status in BUSY or status in (429, 500):
                why = f"HTTP {status}"
            else:
                raise _lost(f"HTTP {status}")
        if damaged >= MOST_DAMAGED or time.monotonic() >= end:
            raise _lost(why)
        await asyncio.sleep(soon())


def _lost(why: str) -> TransientResourceError:
    return TransientResourceError(
        f"A segment of the result cannot be fetched from the store that Trino spools to: {why}.",
        code="segment_lost",
        hint="The query starts again. Check that the worker may reach that store; `encodings = []` does without it.",
    )


async def _get(client: TrinoClient, segment: Segment, uri: str, most: int) -> tuple[int, bytes]:
    headers = {"Accept-Encoding": "identity", **segment.headers}
    timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS, sock_read=client.settings.request_timeout_seconds)
    for _ in range(MOST_REDIRECTS):
        async with client.sessions.storage.get(
            # As it was signed, letter by letter.
            URL(uri, encoded=True),
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
        ) as response:
            location = response.headers.get("Location")
            if response.status not in REDIRECTS or not location:
                return response.status, await bounded_body(response, most)
        target = urljoin(uri, location)
        if uri.startswith("https:") and not target.startswith("https:"):
            raise _lost("it was redirected to an address without TLS")
        uri = target
    raise _lost("it is redirected without end")


async def acknowledge(client: TrinoClient, segment: Segment) -> None:
    """Lets Trino delete it now. Not heard: it expires by itself."""
    if segment.ack_uri is None:
        return
    with suppress(aiohttp.ClientError, TimeoutError, OSError, ValueError):
        async with client.sessions.storage.get(
            URL(segment.ack_uri, encoded=True),
            headers={"Accept-Encoding": "identity", **segment.headers},
            timeout=aiohttp.ClientTimeout(total=ACK_SECONDS),
            allow_redirects=False,
        ):
            pass
