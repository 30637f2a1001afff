"""`paddock dump verify`: one line for each table, and a verdict."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from paddock.amounts import number, several
from paddock.cli.errors import FAILED, CommandFailed
from paddock.cli.output import Column, Form, Item, dump, field, show
from paddock.dumps.commands import dump_progress
from paddock.dumps.verifying.checking import verify
from paddock.dumps.verifying.findings import Checked, Findings, NotWhole
from paddock.dumps.verifying.reading import Record


def verify_file(path: Path, *, trusted: bool, pg_bin: Path | None, told: Path | None, form: Form) -> int:
    record = None if told is None else _record(told)
    try:
        with dump_progress.downloading(quiet=form != "table" or not sys.stderr.isatty(), phase="reading") as read:
            found = verify(path, read, trusted=trusted, pg_bin=pg_bin, record=record)
    except NotWhole as problem:
        raise CommandFailed(problem.message, hint=problem.hint) from None
    tables = [_item(table) for table in found.tables]
    if form in ("json", "yaml"):
        dump(_answer(path, found, tables), form)
    elif tables:
        show(tables, COLUMNS, form, name="table", none="No tables.")
    if form == "table":
        _say(path, found)
    return 0 if found.ok else FAILED


def _record(told: Path) -> Record:
    try:
        known = json.loads(told.read_bytes())
        counts = {str(table): int(rows) for table, rows in known["tables"].items()}
        return Record(counts, str(known["fileName"]), int(known["partBytes"]), str(known["digest"]))
    except OSError as problem:
        raise CommandFailed(f"{told} cannot be read: {problem.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CommandFailed(
            f"{told} does not have the rows and the digest of a dump.",
            hint="Write it with `paddock dumps show ID -o json`.",
        ) from None


def _item(table: Checked) -> dict[str, object]:
    return {**asdict(table), "ok": table.ok}


def _answer(path: Path, found: Findings, tables: Sequence[Item]) -> dict[str, object]:
    return {
        "file": str(path),
        "format": found.format,
        "ok": found.ok,
        "compared": found.compared,
        "point_in_time": found.point_in_time,
        "tables": list(tables),
        "notes": list(found.notes),
    }


def _say(path: Path, found: Findings) -> None:
    for note in found.notes:
        sys.stderr.write(f"{note}\n")
    wrong = sum(not table.ok for table in found.tables)
    rows = sum(table.rows or 0 for table in found.tables)
    at = f", as of {found.point_in_time}" if found.point_in_time else ""
    if not found.tables and found.notes:
        return
    if wrong:
        sys.stdout.write(f"{path} differs from what was dumped in {wrong} of {several(len(found.tables), 'table')}.\n")
    else:
        held = f"{several(len(found.tables), 'table')}, {several(rows, 'row')}"
        sys.stdout.write(f"{path} is whole: {found.format}, {held}{at}.\n")


def _verdict(table: Item) -> str:
    if table["ok"]:
        return "ok"
    if table["problem"] is not None:
        return f"differs: {table['problem']}"
    return f"differs: the dump says {number(table['expected'])}"


COLUMNS: Sequence[Column] = (
    field("table"),
    Column("rows", lambda table: "-" if table["rows"] is None else number(table["rows"]), right=True),
    Column("verdict", _verdict, wide=True),
)
