"""The SQL dump around its rows, in the order that loads: nothing is checked, fired or indexed before all rows are there."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from paddock.dumps.sqlite import statements
from paddock.dumps.sqlite.quoting import fold, literal
from paddock.dumps.sqlite.schema import SAMPLES, SEQUENCE, STATISTICS, Object, Schema, TablePlan, is_virtual
from paddock.engines.children.quoting import quoted as name

DEFAULT_PAGE_SIZE = 4096


@dataclass(frozen=True, slots=True)
class Choice:
    """What of the database."""

    tables: Sequence[str] = ()
    exclude_tables: Sequence[str] = ()
    schema_only: bool = False
    data_only: bool = False


@dataclass(frozen=True, slots=True)
class ScriptPart:
    """What stands before a table's rows; without a table: all there is."""

    head: bytes
    table: TablePlan | None = None


class UnknownTable(Exception):
    def __init__(self, table: str) -> None:
        super().__init__(table)
        self.table = table


@dataclass(frozen=True, slots=True)
class Chosen:
    """Tables as people see them, and those whose rows an SQL dump carries: it writes what virtual ones keep in others."""

    shown: Sequence[TablePlan]
    carried: Sequence[TablePlan]
    names: frozenset[str]
    # Nothing was chosen: views and what belongs to the whole database come too.
    everything: bool
    all_tables: bool


def choose(schema: Schema, choice: Choice) -> Chosen:
    people = [table for table in schema.tables if table.kind != "own"]
    known = {fold(table.name) for table in people} | {fold(each) for each in schema.unreadable}
    for wish in (*choice.tables, *choice.exclude_tables):
        if fold(wish) not in known:
            raise UnknownTable(wish)
    asked = {fold(each) for each in choice.tables}
    names = (asked or known) - {fold(each) for each in choice.exclude_tables}
    shown = [
        table for table in people if fold(table.name) in names and (table.kind != "shadow" or fold(table.name) in asked)
    ]
    carried = [
        table
        for table in people
        if (table.owner in names if table.owner else fold(table.name) in names) or table in shown
    ]
    return Chosen(shown, carried, frozenset(names), not choice.tables, names == known)


class Script:
    def __init__(self, connection: apsw.Connection, schema: Schema, choice: Choice, chosen: Chosen) -> None:
        self._connection = connection
        self._schema = schema
        self._choice = choice
        self._chosen = chosen
        self._objects = {fold(each.name): each for each in schema.objects if each.type == "table"}

    def parts(self) -> list[ScriptPart]:
        if self._choice.data_only:
            return [ScriptPart(_OPENING), *self._tables(), *self._own_tables(), ScriptPart(b"COMMIT;\n")]
        rows = [*self._tables(), *self._own_tables()]
        return [
            ScriptPart(self._opening()),
            *rows,
            ScriptPart(self._other_objects()),
            *self._virtual(),
            ScriptPart(self._closing()),
        ]

    def _opening(self) -> bytes:
        """What must be said before anything is written, then who the file is."""
        before = []
        if self._schema.encoding != "UTF-8":
            before.append(f"PRAGMA encoding={literal(self._schema.encoding)};\n")
        if self._pragma("page_size") != DEFAULT_PAGE_SIZE:
            before.append(f"PRAGMA page_size={self._pragma('page_size')};\n")
        if self._pragma("auto_vacuum"):
            before.append(f"PRAGMA auto_vacuum={self._pragma('auto_vacuum')};\n")
        numbers = [
            f"PRAGMA {each}={self._pragma(each)};\n"
            for each in ("application_id", "user_version")
            if self._pragma(each)
        ]
        unchecked = _UNCHECKED if self._has_checks() else b""
        return "".join(before).encode() + unchecked + _OPENING + "".join(numbers).encode()

    def _has_checks(self) -> bool:
        return any(_CHECK.search(self._objects[fold(table.name)].sql or b"") for table in self._chosen.carried)

    def _pragma(self, what: str) -> int:
        return int(self._connection.pragma(what))

    def _tables(self) -> list[ScriptPart]:
        parts = []
        for table in self._chosen.carried:
            if table.kind == "virtual" or (table.kind == "shadow" and self._choice.schema_only):
                continue
            head = b"" if self._choice.data_only else statements.statement(self._objects[fold(table.name)])
            if self._choice.data_only and table.kind == "shadow":
                # Its virtual table has filled it when it was made.
                head = f"DELETE FROM {name(table.name)};\n".encode()  # noqa: S608 - quoted
            parts.append(ScriptPart(head, None if self._choice.schema_only else table))
        return parts

    def _own_tables(self) -> list[ScriptPart]:
        if self._choice.schema_only:
            return []
        parts = []
        for table in self._schema.tables:
            if table.name == SEQUENCE:
                parts.append(self._sequence(table))
            elif table.name == STATISTICS and not self._choice.data_only:
                parts.append(ScriptPart(b"ANALYZE sqlite_schema;\n", self._only(table, "tbl")))
            elif table.name == SAMPLES and not self._choice.data_only:
                parts.append(ScriptPart(_WRITABLE + _SAMPLES + _NOT_WRITABLE, self._only(table, "tbl")))
        return parts

    def _sequence(self, table: TablePlan) -> ScriptPart:
        """It is there when a table with AUTOINCREMENT was made, and has counted the rows."""
        table = self._only(table, "name")
        where = f" WHERE {table.only}" if table.only else ""
        head = f"DELETE FROM {SEQUENCE}{where};\n"  # noqa: S608 - quoted
        if not self._choice.data_only and not any(self._counts(each) for each in self._chosen.carried):
            made = name("paddock_" + SEQUENCE)
            head = f"CREATE TABLE {made}(id INTEGER PRIMARY KEY AUTOINCREMENT);\nDROP TABLE {made};\n{head}"
        return ScriptPart(head.encode(), table)

    def _counts(self, table: TablePlan) -> bool:
        return any(
            self._connection.column_metadata("main", table.name, column.name)[4]
            for column in table.columns
            if column.rowid
        )

    def _only(self, table: TablePlan, column: str) -> TablePlan:
        """Of the tables that were chosen; of a whole database everything, whatever it names."""
        if self._chosen.all_tables:
            return table
        names = ",".join(literal(each.name) for each in self._chosen.carried)
        return TablePlan(
            table.name, table.kind, table.columns, table.rowid, only=f"{column} COLLATE NOCASE IN ({names or 'NULL'})"
        )

    def _other_objects(self) -> bytes:
        return b"".join(
            statements.statement(each)
            for kind in ("index", "view", "trigger")
            for each in self._schema.objects
            if each.type == kind and each.sql is not None and self._belongs(each)
        )

    def _virtual(self) -> list[ScriptPart]:
        """Their rows are there already, in other tables: only what they are is told. Without rows they are just made."""
        objects = [each for each in self._schema.objects if is_virtual(each) and fold(each.name) in self._chosen.names]
        if self._choice.schema_only:
            return [ScriptPart(statements.statement(each)) for each in objects]
        plans = {fold(table.name): table for table in self._chosen.shown}
        parts = [ScriptPart(statements.row(each, self._schema.codec), plans.get(fold(each.name))) for each in objects]
        return [ScriptPart(_WRITABLE), *parts, ScriptPart(_NOT_WRITABLE)] if parts else []

    def _closing(self) -> bytes:
        """What the file cannot say so that it is read as it stands."""
        corrections = b"".join(
            statements.correction(each, self._schema.codec)
            for each in self._schema.objects
            if self._belongs(each) and not is_virtual(each) and statements.differs(each)
        )
        corrected = _WRITABLE + corrections + _NOT_WRITABLE if corrections else b""
        return corrected + b"COMMIT;\n" + (_CHECKED if self._has_checks() else b"")

    def _belongs(self, each: Object) -> bool:
        """To a table that was chosen, or to all of it: views name whom they like."""
        views = {fold(view.name) for view in self._schema.objects if view.type == "view"}
        if fold(each.table) in views:
            return self._chosen.everything
        carried = {fold(table.name) for table in self._chosen.carried}
        return fold(each.table) in carried


_OPENING = b"PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\n"
# Rows that break a CHECK of their table are there, and stay: the constraint may be younger than they are.
_UNCHECKED, _CHECKED = b"PRAGMA ignore_check_constraints=ON;\n", b"PRAGMA ignore_check_constraints=OFF;\n"
_CHECK = re.compile(rb"\bcheck\b", re.IGNORECASE)
# A loader that uses it has made it (ANALYZE); for any other it is a table like others.
_SAMPLES = b"CREATE TABLE IF NOT EXISTS sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample);\n"
_WRITABLE, _NOT_WRITABLE = b"PRAGMA writable_schema=ON;\n", b"PRAGMA writable_schema=OFF;\n"
