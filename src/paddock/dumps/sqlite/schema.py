"""What stands in a SQLite database: its tables with their columns and keys, and the statements that made everything.

Statements are kept as bytes: they may hold what is no Unicode. Names must be Unicode, because each query names them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import apsw

from paddock.dumps.sqlite.asking import ask
from paddock.dumps.sqlite.collations import BUILT_IN
from paddock.dumps.sqlite.quoting import fold, literal
from paddock.engines.children.quoting import quoted as name

Affinity = Literal["integer", "text", "blob", "real", "numeric"]
Kind = Literal["table", "virtual", "shadow", "own"]

ROWIDS = ("rowid", "_rowid_", "oid")
# SQLite's own tables that a dump carries. They are made by what stands before their rows, not by their statement.
SEQUENCE, STATISTICS, SAMPLES = "sqlite_sequence", "sqlite_stat1", "sqlite_stat4"
CODECS = {"UTF-8": "utf-8", "UTF-16le": "utf-16-le", "UTF-16be": "utf-16-be"}


class Unreadable(Exception):
    """The database says something that cannot be dumped; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class Object:
    """A row of sqlite_schema."""

    type: str
    name: str
    table: str
    sql: bytes | None


@dataclass(frozen=True, slots=True)
class SqliteColumn:
    name: str
    affinity: Affinity
    # Computed by the table: it cannot be inserted.
    generated: bool = False
    # Another name of the rowid: always an integer.
    rowid: bool = False


@dataclass(frozen=True, slots=True)
class KeyColumn:
    name: str
    collation: str
    descending: bool


@dataclass(frozen=True, slots=True)
class TablePlan:
    """How a table's rows are walked: by rowid, by the primary key it is stored by, or, without either, by counting."""

    name: str
    kind: Kind
    columns: Sequence[SqliteColumn]
    rowid: str | None = None
    key: Sequence[KeyColumn] = ()
    # The virtual table that a shadow table works for.
    owner: str | None = None
    # Of the rows, only these.
    only: str | None = None

    @property
    def has_rowid_alias(self) -> bool:
        return any(column.rowid for column in self.columns)


@dataclass(frozen=True, slots=True)
class Schema:
    objects: Sequence[Object]
    tables: Sequence[TablePlan]
    encoding: str
    # Virtual tables that nobody can read here: their module is not in this SQLite, or finds rows only by their words.
    unreadable: Sequence[str] = ()

    @property
    def codec(self) -> str:
        return CODECS[self.encoding]


def read(connection: apsw.Connection) -> Schema:
    encoding = str(connection.pragma("encoding"))
    objects = _objects(connection, CODECS[encoding])
    found: Iterable[Any] = ask(connection, "name, type, wr", "pragma_table_list WHERE schema = 'main'")
    listed = {fold(table): (kind, bool(without_rowid)) for table, kind, without_rowid in found}
    virtual = {fold(each.name) for each in objects if each.type == "table" and is_virtual(each)}
    tables, unreadable = [], []
    for each in objects:
        if each.type != "table" or not _is_dumped(each.name):
            continue
        listed_as, without_rowid = listed[fold(each.name)]
        kind = _kind(each, listed_as)
        try:
            tables.append(_table(connection, each.name, kind, without_rowid, virtual))
        except apsw.SQLError:
            if kind != "virtual":
                raise
            unreadable.append(each.name)
    return Schema(objects, tables, encoding, unreadable)


def is_virtual(each: Object) -> bool:
    return each.sql is not None and each.sql[:20].upper() == b"CREATE VIRTUAL TABLE"


def _is_dumped(table: str) -> bool:
    folded = fold(table)
    return not folded.startswith("sqlite_") or folded in (SEQUENCE, STATISTICS, SAMPLES)


def _objects(connection: apsw.Connection, codec: str) -> list[Object]:
    rows = connection.execute(
        "SELECT CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB)"
        " FROM sqlite_schema ORDER BY rowid"
    )
    return [
        Object(_name(type, codec), _name(own, codec), _name(table, codec), _statement(sql, codec))
        for type, own, table, sql in rows
    ]


def _name(data: bytes, codec: str) -> str:
    try:
        return data.decode(codec)
    except UnicodeDecodeError:
        raise Unreadable(f"A table or index has a name that is not Unicode: {data!r}. Rename it.") from None


def _statement(data: bytes | None, codec: str) -> bytes | None:
    if data is None or codec == "utf-8":
        return data
    return data.decode(codec, "replace").encode()


def _kind(each: Object, listed: str) -> Kind:
    if is_virtual(each):
        return "virtual"
    if fold(each.name).startswith("sqlite_"):
        return "own"
    return "shadow" if listed == "shadow" else "table"


def _table(connection: apsw.Connection, table: str, kind: Kind, without_rowid: bool, virtual: set[str]) -> TablePlan:
    columns = _columns(connection, table, without_rowid)
    if kind == "virtual":
        ask(connection, "1", f"main.{name(table)} LIMIT 1").fetchall()
        return TablePlan(table, kind, columns)
    owner = _owner(table, virtual) if kind == "shadow" else None
    if without_rowid:
        # In a query of a query SQLite gives columns of these names others.
        renamed = any(fold(column.name) in ("true", "false") for column in columns)
        return TablePlan(table, kind, columns, key=[] if renamed else _key(connection, table), owner=owner)
    return TablePlan(table, kind, columns, rowid=_rowid(columns), owner=owner)


def _columns(connection: apsw.Connection, table: str, without_rowid: bool) -> list[SqliteColumn]:
    source = f"pragma_table_xinfo({literal(table)}) WHERE hidden != 1"
    rows: list[Any] = ask(connection, "name, type, pk, hidden", source).fetchall()
    if not rows:
        raise apsw.SQLError(f"no columns in {table}")
    alias = None if without_rowid else _alias(connection, table, rows)
    return [
        SqliteColumn(column, affinity(declared), hidden in (2, 3), fold(column) == alias)
        for column, declared, _, hidden in rows
    ]


def _alias(connection: apsw.Connection, table: str, rows: Sequence[tuple[str, str, int, int]]) -> str | None:
    """The INTEGER PRIMARY KEY. One in DESC is none, for old times' sake: it has an index of its own."""
    keys = [fold(column) for column, declared, pk, _ in rows if pk and fold(declared) == "integer"]
    if len(keys) != 1 or sum(1 for row in rows if row[2]) != 1:
        return None
    indexed = ask(connection, "1", f"pragma_index_list({literal(table)}) WHERE origin = 'pk'")
    return None if indexed.fetchall() else keys[0]


def _rowid(columns: Sequence[SqliteColumn]) -> str | None:
    for column in columns:
        if column.rowid:
            return name(column.name)
    taken = {fold(column.name) for column in columns}
    return next((each for each in ROWIDS if each not in taken), None)


def _key(connection: apsw.Connection, table: str) -> list[KeyColumn]:
    """Empty where an unknown collation decides about the order: nobody here can look a key up."""
    indexes = f"pragma_index_list({literal(table)}) AS i, pragma_index_xinfo(i.name) AS x"
    wanted = f"{indexes} WHERE i.origin = 'pk' AND x.key ORDER BY x.seqno"
    rows: Iterable[Any] = ask(connection, "x.name, x.coll, x.desc", wanted)
    key = [KeyColumn(column, collation, bool(descending)) for column, collation, descending in rows]
    return key if all(fold(column.collation) in BUILT_IN for column in key) else []


def _owner(table: str, virtual: set[str]) -> str | None:
    owners = [each for each in virtual if fold(table).startswith(each + "_")]
    return max(owners, key=len, default=None)


def affinity(declared: str) -> Affinity:
    """By the rules of section 3.1 of SQLite's page on data types, in their order."""
    words = declared.upper()
    if "INT" in words:
        return "integer"
    if any(word in words for word in ("CHAR", "CLOB", "TEXT")):
        return "text"
    if "BLOB" in words or not words:
        return "blob"
    if any(word in words for word in ("REAL", "FLOA", "DOUB")):
        return "real"
    return "numeric"
