"""Large rows, one at a time: blobs and text come as their bytes and are written in Python, whose way with long ones is
faster than SQLite's; all else comes as it is to be written."""

from binascii import hexlify
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring

from paddock.dumps.sqlite.expressions import DOUBT, Writing, utf8
from paddock.dumps.sqlite.schema import SqliteColumn, Unreadable
from paddock.dumps.sqlite.values import not_kept, not_unicode
from paddock.engines.children.quoting import quoted as name

# A result has at most 2,000 columns, and each of a row takes three. A wider row takes several questions.
MOST = 600


class Fetching:
    """Three expressions for a column: its blob, its text, or anything else; of which one is not NULL."""

    def __init__(self, writing: Writing, codec: str, *, at_once: bool = False) -> None:
        """`at_once`: there is one question for a row, so a row too wide for it is asked for as SQLite writes it."""
        self._writing = writing
        self._codec = codec
        self._json = writing.format == "json"
        self._hex = HEX[writing.format]
        self._text = _TEXTS[writing.format]
        self._safe = writing.csv_safe
        self._keys = [_key(column) if self._json else b"" for column in writing.columns]
        self._rowid = writing.keeps_rowid
        columns = writing.columns
        self._written_by_sqlite = at_once and len(columns) > MOST
        if self._written_by_sqlite:
            self.values = [[f"CAST({writing.row()} AS BLOB)"]]
            return
        # What is asked for at once, and together is a row.
        self.values = [
            self._values(writing, columns[start : start + MOST], rowid=writing.keeps_rowid and start == 0)
            for start in range(0, len(columns), MOST)
        ]

    def _values(self, writing: Writing, columns: Sequence[SqliteColumn], *, rowid: bool) -> list[str]:
        values = [f"CAST({writing.plan.rowid} AS BLOB)"] if rowid else []
        for column in columns:
            it = name(column.name)
            is_text = f"+{it} COLLATE BINARY>='' AND {it}<x''"
            values += [
                f"CASE WHEN {it}>=x'' THEN {it} END",
                f"CASE WHEN {is_text} THEN CAST({it} AS BLOB) END",
                f"CASE WHEN {it}>=x'' OR ({is_text}) THEN NULL ELSE CAST({writing.value(column)} AS BLOB) END",
            ]
        return values

    def text(self, row: Sequence[bytes | None]) -> bytes:
        return b"".join(self.pieces(row))

    def pieces(self, row: Sequence[bytes | None]) -> list[bytes]:
        """Not joined, as they are large: that is for who has them all."""
        if self._written_by_sqlite:
            return [self._checked(utf8(row[0] or b"", self._codec))]
        pieces = [utf8(row[0] or b"", self._codec), b","] if self._rowid else []
        first = len(pieces) // 2
        for number, key in enumerate(self._keys):
            pieces.append(b"," + key if number else key)
            blob, text, other = row[first + 3 * number : first + 3 * number + 3]
            if blob is not None:
                pieces += (self._hex[0], hexlify(blob), self._hex[1])
            elif text is not None:
                pieces.append(self._written(text))
            else:
                pieces.append(utf8(other or b"", self._codec))
        return [b"{", *pieces, b"}"] if self._json else pieces

    def _checked(self, row: bytes) -> bytes:
        if self._writing.format == "csv" and self._writing.wide and DOUBT in row:
            raise Unreadable(
                f"Table '{self._writing.plan.name}' has text that is no Unicode, more than {MOST} columns and no key to"
                " look rows up by. Dump it as SQL or JSON."
            )
        return row

    def _written(self, text: bytes) -> bytes:
        if self._safe and utf8(text[:2], self._codec).startswith(UNSAFE):
            return b"\"'" + self._text(text, self._codec)[1:]
        return self._text(text, self._codec)


HEX = {"sql": (b"X'", b"'"), "csv": (b"\\x", b""), "json": (b'{"$hex":"', b'"}')}
UNSAFE = (b"=", b"+", b"-", b"@", b"\t", b"\r")


def _sql(text: bytes, codec: str) -> bytes:
    """As `expressions` has it."""
    plain = utf8(text, codec)
    hexed = b"CAST(X'" + hexlify(text) + b"' AS TEXT)"
    if b"\0" in plain or (codec != "utf-8" and not_kept(text, codec)):
        return hexed
    quoted = b"'" + plain.replace(b"'", b"''") + b"'"
    if b"\r" not in plain:
        return quoted
    return hexed if b"\\r" in plain else b"replace(" + quoted.replace(b"\r", b"\\r") + b",'\\r',char(13))"


def _csv(text: bytes, codec: str) -> bytes:
    return b'"' + utf8(text, codec).replace(b'"', b'""') + b'"'


def _json(text: bytes, codec: str) -> bytes:
    if not_unicode(text, codec):
        return b'{"$text_hex":"' + hexlify(utf8(text, codec)) + b'"}'
    return encode_basestring(text.decode(codec)).encode()


_TEXTS: dict[str, Callable[[bytes, str], bytes]] = {"sql": _sql, "csv": _csv, "json": _json}


def _key(column: SqliteColumn) -> bytes:
    return encode_basestring(column.name).encode() + b":"
