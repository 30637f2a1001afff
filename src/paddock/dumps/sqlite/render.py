"""Renders a database file as a whole process: for measuring, and for who has nothing but the file.

python -m paddock.dumps.sqlite.render FILE --format sql > dump.sql
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from paddock.dumps.sqlite.chunks import Limits
from paddock.dumps.sqlite.expressions import Writing
from paddock.dumps.sqlite.opening import opened
from paddock.dumps.sqlite.rendering import renderer
from paddock.dumps.sqlite.script import Choice, Script, ScriptPart, choose

_LIMITS = Limits(5_000, 4 << 20)
_USAGE = "Usage: python -m paddock.dumps.sqlite.render FILE [--format sql|json|csv]"
# Who has freed one block so large gets all smaller ones from memory that the C library keeps; else the system gives and
# takes that of each chunk. It is the largest that counts.
_KEPT = 31 << 20


def render_to(path: Path, format: str, write: Callable[[Iterable[bytes]], object], limits: Limits = _LIMITS) -> int:
    """SQL of the whole; JSON and CSV of all rows, table after table. Answers how many rows. Nobody may write to it."""
    connection, schema = opened(path)
    chosen = choose(schema, Choice())
    parts = (
        Script(connection, schema, Choice(), chosen).parts()
        if format == "sql"
        else [ScriptPart(b"", table) for table in chosen.shown]
    )
    count = 0
    for part in parts:
        write([part.head])
        if part.table is None or (format == "sql" and part.table.kind == "virtual"):
            continue
        table = renderer(connection, schema, Writing(part.table, format, wide=schema.codec != "utf-8"), limits)
        place, more = None, True
        while more:
            chunk = table.render(place)
            write(chunk.pieces)
            count, place, more = count + chunk.rows, chunk.next, chunk.next is not None
        table.close()
    connection.close()
    return count


def main() -> None:
    match sys.argv[1:]:
        case [file]:
            format = "sql"
        case [file, "--format", ("sql" | "json" | "csv") as format]:
            pass
        case _:
            sys.exit(_USAGE)
    bytes(_KEPT)
    render_to(Path(file), format, sys.stdout.buffer.writelines)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
