"""A dump to its end, in memory."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from paddock.dumps.database_settings import PostgresDatabase
from paddock.dumps.model import DumpOptions, Format
from paddock.dumps.postgres.source import PostgresSource
from paddock.dumps.source import Frozen, Table

DRAFT = "0197b5d2-draft"


@dataclass
class Whole:
    data: bytes = b""
    tables: dict[str, bytes] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    point_in_time: datetime | None = None


async def dumped(settings: PostgresDatabase, format: Format = "sql", draft: str = DRAFT, **options: Any) -> Whole:
    frozen = await PostgresSource(settings).open(format, DumpOptions(**options), draft)
    try:
        return await read(frozen, format)
    finally:
        await frozen.close()


async def read(frozen: Frozen, format: Format) -> Whole:
    whole = Whole(point_in_time=frozen.point_in_time)
    tables = [section.table for section in frozen.sections()] or frozen.tables
    for table in tables:
        assert table is not None
        whole.tables[table.name] = await _rows(frozen, table, format, whole.counts)
    whole.data = b"".join(whole.tables.values())
    return whole


async def _rows(frozen: Frozen, table: Table, format: Format, counts: Counter[str]) -> bytes:
    parts: list[bytes] = []
    place = None
    while True:
        rows = await frozen.rows(table, format, place)
        parts.append(rows.data)
        counts.update(rows.counts)
        if (place := rows.next) is None:
            return (b",\n" if format == "json" else b"").join(parts)
