"""`python -m bench.trino_server TABLE...`: a Trino of our own that has its answers ready, so that it costs next to
nothing and measures whoever reads it.

A table is `SHAPE:ROWS:AT_ONCE`, and a query names it as `FROM SHAPE`: so many different rows, sent so many at a time.
`FROM SHAPE.direct` comes as pages of the coordinator, `FROM SHAPE.spooled` as one segment in each page, in the encoding
that the caller asked for first. `TIMES` in the query (`/* 3 times */`) repeats all of it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa
import uvloop
from aiohttp import web

from bench.process import say, words
from bench.trino_pages import FLAT, NESTED, Columns, _flat_row, _nested_row

CODECS = {"json+zstd": "zstd", "json+lz4": "lz4_raw"}
QUERY = re.compile(r"FROM (\w+)\.(direct|spooled)(?: /\* (\d+) times \*/)?")
# Hardly compressible, as identifiers and packed payloads are: the file is nearly as large as what was sent.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
PACKED: Columns = [
    *FLAT[:2],
    {"name": "changed", "typeSignature": {"rawType": "timestamp", "arguments": [{"kind": "LONG", "value": 3}]}},
    {"name": "payload", "typeSignature": {"rawType": "varchar", "arguments": [{"kind": "LONG", "value": 2147483647}]}},
]


def _packed_row(dice: random.Random, number: int) -> list[Any]:
    moment = f"2026-01-{1 + number % 28:02d} 12:00:00.{number % 1000:03d}"
    return [number, dice.randrange(10**7), moment, "".join(dice.choices(LETTERS, k=700))]


SHAPES: dict[str, tuple[Columns, Callable[[random.Random, int], list[Any]]]] = {
    "flat": (FLAT, _flat_row),
    "nested": (NESTED, _nested_row),
    "packed": (PACKED, _packed_row),
}


@dataclass
class Table:
    """`pieces` are rows as Trino writes them: no spaces, raw UTF-8."""

    columns: Columns
    pieces: Sequence[tuple[bytes, int]]
    _encoded: dict[str, Sequence[bytes]] = field(default_factory=dict)

    def encoded(self, encoding: str) -> Sequence[bytes]:
        if encoding not in self._encoded:
            texts = [text for text, _ in self.pieces]
            codec = CODECS.get(encoding)
            self._encoded[encoding] = (
                [pa.Codec(codec).compress(text, asbytes=True) for text in texts] if codec else texts
            )
        return self._encoded[encoding]


def make_table(shape: str, rows: int, at_once: int) -> Table:
    columns, row = SHAPES[shape]
    dice = random.Random(484)
    pieces = []
    for start in range(0, rows, at_once):
        made = [row(dice, number) for number in range(start, min(start + at_once, rows))]
        pieces.append((json.dumps(made, separators=(",", ":"), ensure_ascii=False).encode(), len(made)))
    return Table(columns, pieces)


@dataclass(frozen=True)
class Asked:
    """A query as it came, with the clock that all processes of a machine share."""

    at_ns: int
    sql: str


class Server:
    def __init__(self, tables: dict[str, Table]) -> None:
        self._tables = tables
        self._ids = itertools.count(1)
        self._asked: list[Asked] = []
        self.url = ""

    async def submit(self, request: web.Request) -> web.Response:
        at_ns = time.monotonic_ns()
        sql = (await request.read()).decode()
        self._asked.append(Asked(at_ns, sql))
        found = QUERY.search(sql)
        if found is None:
            return web.Response(status=400, text="There is no such table.")
        shape, way, times = found.groups(default="1")
        id = f"20260101_000000_{next(self._ids):05d}_bench"
        if "LIMIT 0" in sql:
            return _page(id, self._tables[shape].columns, None)
        offered = request.headers.get("X-Trino-Query-Data-Encoding", "").partition(",")[0]
        if way == "direct" or not offered:
            offered = "direct"
        following = f"{self.url}/v1/statement/executing/{id}/{shape}/{offered}/{times}/0"
        return _page(id, None, None, following, "QUEUED")

    async def page(self, request: web.Request) -> web.Response:
        id, shape, encoding, times, at = (
            request.match_info[name] for name in ("id", "shape", "encoding", "times", "at")
        )
        table, number = self._tables[shape], int(at)
        if number == len(table.pieces) * int(times):
            return _page(id, table.columns, None)
        following = f"{self.url}/v1/statement/executing/{id}/{shape}/{encoding}/{times}/{number + 1}"
        round_, place = divmod(number, len(table.pieces))
        if encoding == "direct":
            return _page(id, table.columns, table.pieces[place][0], following)
        segment = self._segment(table, shape, encoding, round_, place)
        return _page(id, table.columns, json.dumps({"encoding": encoding, "segments": [segment]}).encode(), following)

    def _segment(self, table: Table, shape: str, encoding: str, round_: int, place: int) -> dict[str, Any]:
        counts = [count for _, count in table.pieces]
        size = len(table.encoded(encoding)[place])
        metadata = {
            "rowOffset": round_ * sum(counts) + sum(counts[:place]),
            "rowsCount": counts[place],
            "segmentSize": size,
        }
        if encoding != "json":
            metadata["uncompressedSize"] = len(table.pieces[place][0])
        return {
            "type": "spooled",
            "uri": f"{self.url}/segment/{shape}/{encoding}/{place}",
            "ackUri": f"{self.url}/ack",
            "headers": {},
            "metadata": metadata,
        }

    async def segment(self, request: web.Request) -> web.Response:
        table = self._tables[request.match_info["shape"]]
        return web.Response(body=table.encoded(request.match_info["encoding"])[int(request.match_info["at"])])

    async def nothing(self, request: web.Request) -> web.Response:
        return web.Response(status=204)

    async def asked(self, request: web.Request) -> web.Response:
        """For the benchmark, not for Trino's clients: every query so far."""
        return web.json_response([[one.at_ns, one.sql] for one in self._asked])

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/statement", self.submit)
        one = "/v1/statement/executing/{id}/{shape}/{encoding}/{times}/{at}"
        app.router.add_get(one, self.page, allow_head=False)
        app.router.add_route("HEAD", one, self.nothing)
        app.router.add_delete(one, self.nothing)
        app.router.add_get("/segment/{shape}/{encoding}/{at}", self.segment)
        app.router.add_get("/ack", self.nothing)
        app.router.add_get("/asked", self.asked)
        return app


def _page(
    id: str, columns: Columns | None, data: bytes | None, following: str | None = None, state: str = "RUNNING"
) -> web.Response:
    """Its members in Trino's order."""
    head: dict[str, Any] = {"id": id, "infoUri": "http://none/"}
    if following is not None:
        head["nextUri"] = following
    if columns is not None:
        head["columns"] = _described(json.dumps(columns))
    text = json.dumps(head, separators=(",", ":")).encode()[:-1]
    rows = b"" if data is None else b',"data":' + data
    stats = {"state": state if following else "FINISHED", "queued": state == "QUEUED", "nodes": 1}
    return web.Response(
        body=b"".join((text, rows, b',"stats":', json.dumps(stats).encode(), b',"warnings":[]}')),
        content_type="application/json",
    )


@cache
def _described(columns: str) -> list[dict[str, Any]]:
    """With the type as text beside its signature, which the official client wants to see."""
    return [{**column, "type": column["typeSignature"]["rawType"]} for column in json.loads(columns)]


async def main() -> None:
    tables = {}
    for given in sys.argv[1:]:
        shape, rows, at_once = given.split(":")
        tables[shape] = make_table(shape, int(rows), int(at_once))
    server = Server(tables)
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    server.url = f"http://127.0.0.1:{site.port}"
    bytes_ = {shape: sum(len(text) for text, _ in table.pieces) for shape, table in tables.items()}
    say("ready", url=server.url, bytes=bytes_)
    async for _ in words():
        pass
    await asyncio.wait_for(runner.cleanup(), 5)


if __name__ == "__main__":
    uvloop.run(main())
