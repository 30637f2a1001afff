"""The statements of a schema so that the sqlite3 command reads from a file what stands in the database.

It reads lines: it drops a CR before LF, takes a line that is just `go` or `/` for the end of a statement that could end
there, and a line that begins with a dot, between statements, for a command of its own.
"""

import re

import apsw

from paddock.dumps.sqlite.quoting import hexed
from paddock.dumps.sqlite.schema import Object, Unreadable

_ENDS_STATEMENT = re.compile(r"^[ \t\f\v\r]*(go|/)(?=[ \t\f\v\r]*$)", re.IGNORECASE | re.MULTILINE)


def statement(each: Object) -> bytes:
    """As it is, with an end; changed only where the command would read something else (see `differs`)."""
    assert each.sql is not None
    return _kept_together(_ended(each)) + b"\n"


def differs(each: Object) -> bool:
    """Whether it stands otherwise in the database than it is read from the file."""
    texts = (each.sql or b"", each.name.encode(), each.table.encode())
    return any(b"\r\n" in text for text in texts) or (
        each.sql is not None and _kept_together(_ended(each)) != _ended(each)
    )


def correction(each: Object, codec: str) -> bytes:
    """Under `writable_schema`: says it as it is. It is found by its name as it was read, with or without CR."""
    values = [b"name=" + hexed(each.name.encode(), codec), b"tbl_name=" + hexed(each.table.encode(), codec)]
    if each.sql is not None:
        values.append(b"sql=" + hexed(each.sql, codec))
    read = hexed(each.name.replace("\r\n", "\n").encode(), codec)
    where = b"type='" + each.type.encode() + b"' AND replace(name,char(13,10),char(10))=" + read
    return b"UPDATE sqlite_schema SET " + b",".join(values) + b" WHERE " + where + b";\n"


def row(each: Object, codec: str) -> bytes:
    """Under `writable_schema`: the row of a virtual table, which has no pages of its own."""
    texts = [_text(text, codec) for text in (each.name.encode(), each.table.encode(), each.sql or b"")]
    values = [b"'table'", *texts[:2], b"0", texts[2]]
    return b"INSERT INTO sqlite_schema(type,name,tbl_name,rootpage,sql)VALUES(" + b",".join(values) + b");\n"


def _text(data: bytes, codec: str) -> bytes:
    return hexed(data, codec) if b"\r" in data or b"\0" in data else b"'" + data.replace(b"'", b"''") + b"'"


def _ended(each: Object) -> bytes:
    """With a semicolon that is no part of a comment. What holds a second statement was not written by SQLite: whoever
    loads it would run it."""
    sql = each.sql or b""
    text = sql.decode("utf-8", "replace")
    inside = (at for at, char in enumerate(text) if char == ";")
    if any(apsw.complete(text[: at + 1]) for at in inside):
        raise Unreadable(f"The statement of {each.type} '{each.name}' in sqlite_schema has something behind its end.")
    for end in (";", "\n;", "*/;"):
        if apsw.complete(text + end):
            return sql + end.encode()
    raise Unreadable(f"The statement of {each.type} '{each.name}' in sqlite_schema has no end.")


def _kept_together(sql: bytes) -> bytes:
    """A comment before it (behind it is taken for a space) keeps a line from being an end where it would be one: not
    inside of quotes or comments."""
    text = sql.decode("utf-8", "surrogateescape")

    def guarded(found: re.Match[str]) -> str:
        before = text[: found.start()].encode("utf-8", "replace").decode()
        return ("/**/" if apsw.complete(before + ";") else "") + found[0]

    return _ENDS_STATEMENT.sub(guarded, text).encode("utf-8", "surrogateescape")
