"""A look at a file: what it is, then whether all of it is there."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from paddock.dumps.verifying import documents, postgres, sqlite
from paddock.dumps.verifying.findings import Checked, Findings, NotWhole, Told, compared
from paddock.dumps.verifying.reading import DumpFile, Record, Trailer, opened

ONLY_ROWS = (
    "It holds only rows, and no tables to load them into: its end and its digest are right, its rows are not counted."
)
COUNTED_IN_FILE = "It holds only rows, and no tables to load them into: they are counted in the file."
OTHER_PACKING = (
    "It was compressed or decompressed since it was made: its rows are counted, its bytes cannot be compared. Verify the "
    "file as it was downloaded for that."
)
NO_COUNTS = (
    "The file has no row counts and no digest in it: it is whole and well formed, and these are its rows. --expected FILE "
    "compares it with what was written."
)


def verify(
    path: Path,
    told: Told,
    *,
    trusted: bool = False,
    pg_bin: Path | None = None,
    record: Record | None = None,
) -> Findings:
    """Raises `NotWhole` for what is no whole dump; a difference is among the findings. `record`: what its dump says of
    it. A file may agree with all that it tells itself, and yet be another, or have been written anew."""
    found = _verify(path, told, trusted=trusted, pg_bin=pg_bin, counts={} if record is None else record.counts)
    if record is None:
        return found
    same = opened(path).check_record(record, told)
    if found.format != "custom" and found.tables:
        found = _with_counts(record.counts, found)
    return (
        found
        if same
        else replace(found, notes=[*(note for note in found.notes if note != OTHER_PACKING), OTHER_PACKING])
    )


def _with_counts(counts: Mapping[str, int], found: Findings) -> Findings:
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
    notes = [note for note in found.notes if note != NO_COUNTS]
    return replace(found, tables=[*told, *untold], compared=True, notes=notes)


def _verify(path: Path, told: Told, *, trusted: bool, pg_bin: Path | None, counts: Mapping[str, int]) -> Findings:
    file = opened(path)
    head = file.head()
    if head.startswith(sqlite.MAGIC):
        return _uncompared("sqlite", sqlite.check_file(file, told))
    if head.startswith(postgres.MAGIC):
        return _custom(file, told, trusted=trusted, pg_bin=pg_bin, counts=counts)
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
    notes = [] if file.check_digest(trailer, told) else [OTHER_PACKING]
    source = trailer.source or dialect(head)
    if source == "postgres":
        loaded = postgres.load(file, trailer.tables, told, custom=False, trusted=trusted, pg_bin=pg_bin)
        counts = dict(loaded.counts)
        if trailer.tables and not counts:
            counts = {table: loaded.told.get(table, 0) for table in trailer.tables}
            notes.append(COUNTED_IN_FILE)
        else:
            notes += loaded.notes
        return _findings(source, trailer, compared(counts, trailer.tables), notes)
    try:
        if source == "duckdb":
            from paddock.dumps.verifying import duckdb

            counts = duckdb.load(file, trailer.tables, told)
        else:
            counts = sqlite.load(file, trailer.tables, told)
    except sqlite.OnlyRows:
        return _findings(source, trailer, [], [*notes, ONLY_ROWS])
    return _findings(source, trailer, compared(counts, trailer.tables), notes)


def _findings(source: str, trailer: Trailer, tables: list[Checked], notes: list[str]) -> Findings:
    return Findings(f"sql ({source})", tables, compared=True, point_in_time=trailer.point_in_time, notes=notes)


def _custom(file: DumpFile, told: Told, *, trusted: bool, pg_bin: Path | None, counts: Mapping[str, int]) -> Findings:
    """`counts`: the rows of each table, where they are known. Whatever else is restored was made by an extension."""
    loaded = postgres.load(file, counts, told, custom=True, trusted=trusted, pg_bin=pg_bin)
    expected = counts or {**dict.fromkeys(sorted(loaded.counts), 0), **loaded.told}
    if loaded.told and not loaded.counts:
        rows = {**dict.fromkeys(counts, 0), **loaded.told}
        tables = compared(rows, counts or rows)
        return Findings("custom", tables, compared=bool(counts), notes=[COUNTED_IN_FILE])
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
