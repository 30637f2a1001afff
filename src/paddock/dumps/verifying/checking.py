"""A look at a file: what it is, then whether all of it is there."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from paddock.dumps.verifying import documents, postgres, sqlite
from paddock.dumps.verifying.findings import Checked, Findings, NotWhole, Told, compared
from paddock.dumps.verifying.reading import DumpFile, Trailer, opened

ONLY_ROWS = (
    "It holds only rows, and no tables to load them into: its end and its digest are right, its rows are not counted."
)
NO_COUNTS = "It tells no counts: it is whole and well formed, and these are the rows there are."


def verify(
    path: Path,
    told: Told,
    *,
    trusted: bool = False,
    pg_bin: Path | None = None,
    counts: Mapping[str, int] | None = None,
) -> Findings:
    """Raises `NotWhole` for what is no whole dump; a difference is among the findings. `counts`: what somebody else says
    of it, for a file that tells none itself."""
    found = _verify(path, told, trusted=trusted, pg_bin=pg_bin)
    return found if found.compared or counts is None else _told_by(counts, found)


def _told_by(counts: Mapping[str, int], found: Findings) -> Findings:
    rows = {table.table: table for table in found.tables}
    if [*rows] == [documents.ONE] and len(counts) == 1:
        rows = dict(zip(counts, rows.values(), strict=True))
    told = [
        replace(rows[name], table=name, expected=count)
        if name in rows
        else Checked(name, None, count, "is not in the file")
        for name, count in counts.items()
    ]
    untold = [replace(rows[name], problem="was not dumped") for name in rows if name not in counts]
    return replace(found, tables=[*told, *untold], compared=True, notes=[])


def _verify(path: Path, told: Told, *, trusted: bool, pg_bin: Path | None) -> Findings:
    file = opened(path)
    head = file.head()
    if head.startswith(sqlite.MAGIC):
        return _uncompared("sqlite", sqlite.check_file(file, told))
    if head.startswith(postgres.MAGIC):
        return _custom(file, told, trusted=trusted, pg_bin=pg_bin)
    if head.startswith(b"PK"):
        tables, at = documents.check_zip(file, told)
        return Findings("csv (zip)", tables, compared=True, point_in_time=at)
    if head[8:12] == b"DUCK":
        raise NotWhole(f"{path} is a DuckDB database itself, and no dump of one.")
    if head.lstrip()[:1] in (b"[", b"{"):
        return Findings("json", documents.check_json(file, told), compared=False, notes=[NO_COUNTS])
    if _is_csv(path):
        return Findings("csv", documents.check_csv(file, told), compared=False, notes=[NO_COUNTS])
    if b"\0" in head:
        raise NotWhole(f"{path} is no dump of Paddock: it is neither SQL, JSON, CSV, a zip nor a database.")
    return _sql(file, head, told, trusted=trusted, pg_bin=pg_bin)


def _sql(file: DumpFile, head: bytes, told: Told, *, trusted: bool, pg_bin: Path | None) -> Findings:
    trailer = file.trailer()
    file.check_digest(trailer, told)
    source = trailer.source or dialect(head)
    notes: list[str] = []
    if source == "postgres":
        loaded = postgres.load(file, told, custom=False, trusted=trusted, pg_bin=pg_bin)
        counts, notes = dict(loaded.counts), list(loaded.notes)
        if trailer.tables and not counts:
            counts = {table: loaded.told.get(table, 0) for table in trailer.tables}
            notes = ["It holds only rows, and no tables to load them into: they are counted in the file."]
        return _findings(source, trailer, compared(counts, trailer.tables), notes)
    try:
        if source == "duckdb":
            from paddock.dumps.verifying import duckdb

            counts = duckdb.load(file, trailer.tables, told)
        else:
            counts = sqlite.load(file, trailer.tables, told)
    except sqlite.OnlyRows:
        return _findings(source, trailer, [], [ONLY_ROWS])
    return _findings(source, trailer, compared(counts, trailer.tables), notes)


def _findings(source: str, trailer: Trailer, tables: list[Checked], notes: list[str]) -> Findings:
    return Findings(f"sql ({source})", tables, compared=True, point_in_time=trailer.point_in_time, notes=notes)


def _custom(file: DumpFile, told: Told, *, trusted: bool, pg_bin: Path | None) -> Findings:
    loaded = postgres.load(file, told, custom=True, trusted=trusted, pg_bin=pg_bin)
    expected = {**dict.fromkeys(sorted(loaded.counts), 0), **loaded.told}
    if loaded.told and not loaded.counts:
        notes = ["It holds only rows, and no tables to load them into: they are counted in the file."]
        return Findings("custom", compared(loaded.told, loaded.told), compared=False, notes=notes)
    return Findings("custom", compared(loaded.counts, expected), compared=True, notes=loaded.notes)


def _uncompared(format: str, counts: dict[str, int | None]) -> Findings:
    tables = [
        Checked(table, rows, None, None if rows is not None else "cannot be read") for table, rows in counts.items()
    ]
    return Findings(format, tables, compared=False, notes=[NO_COUNTS])


def _is_csv(path: Path) -> bool:
    return ".csv" in (path.suffixes[-2:] if path.suffix in (".gz", ".zst") else path.suffixes[-1:])


def dialect(head: bytes) -> str:
    """Whose SQL it is, by how it begins."""
    if b"-- PostgreSQL database dump" in head[:4096]:
        return "postgres"
    return "duckdb" if head.startswith(b"-- DuckDB ") else "sqlite"
