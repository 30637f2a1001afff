"""A database in memory, with the manners of a real source."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import orjson

from paddock.dumps.composing import trailer
from paddock.dumps.compressing import compressed
from paddock.dumps.digesting import PartDigest
from paddock.dumps.model import Compression, Format
from paddock.dumps.source import Place, Rows, Section, Table

AT = datetime(2026, 11, 16, 9, 30, 15, 250_000, tzinfo=UTC)


class InMemory:
    identity = "memory 1"
    point_in_time = AT

    def __init__(self, tables: Mapping[str, Sequence[str]], *, chunk_rows: int = 3) -> None:
        self._content = tables
        self._chunk_rows = chunk_rows
        self.tables = [Table(name, len(rows), ("n", "text")) for name, rows in tables.items()]
        self.size = sum(len(text) for rows in tables.values() for text in rows)
        self.rendered: list[tuple[str, Place]] = []

    def sections(self) -> Sequence[Section]:
        tables = [Section(f'CREATE TABLE "{table.name}"(n, text);\n'.encode(), table) for table in self.tables]
        return [Section(b"BEGIN;\n"), *tables, Section(b"COMMIT;\n")]

    async def rows(self, table: Table, format: Format, place: Place | None) -> Rows:
        self.rendered.append((table.name, place))
        start = 0 if place is None else int(base64.b64decode(place))
        texts = self._content[table.name][start : start + self._chunk_rows]
        end = start + len(texts)
        following = base64.b64encode(str(end).encode()).decode() if end < len(self._content[table.name]) else None
        lines = [_row(table.name, number, text, format) for number, text in enumerate(texts, start)]
        return Rows((b",\n" if format == "json" else b"").join(lines), following, {table.name: len(texts)})

    async def close(self) -> None:
        pass


def _row(table: str, number: int, text: str, format: Format) -> bytes:
    if format == "json":
        return orjson.dumps({"n": number, "text": text})
    if format == "csv":
        return f'{number},"{text.replace(chr(34), chr(34) * 2)}"\r\n'.encode()
    return f"INSERT INTO \"{table}\" VALUES({number},'{text}');\n".encode()


def texts(count: int, length: int = 20) -> list[str]:
    """The same every time, of many lengths, and hard to compress."""
    return [hashlib.shake_128(b"%d" % number).hexdigest(4 + number * 7 % length) for number in range(count)]


def ended(sql: bytes, tables: Mapping[str, int], part_size: int = 8 << 20, how: Compression = "none") -> bytes:
    """The text with its last line, as a writer ends it."""
    body = compressed(sql, how)
    digest = PartDigest(part_size)
    digest.add(body)
    facts = {
        "dump": "export_20261116-093000_k3x9qa",
        "database": "shop",
        "pointInTime": "2026-11-16T09:30:15.250Z",
        "tables": dict(tables),
        "compress": how,
        "bytes": len(body),
        "partSize": part_size,
    }
    return body + compressed(trailer(facts, digest.value), how)
