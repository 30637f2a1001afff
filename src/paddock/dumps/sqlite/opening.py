"""A database, opened to be read: nothing in it changes by that, and nothing of it is trusted."""

from pathlib import Path
from urllib.parse import quote

import apsw

from paddock.dumps.sqlite import schema, values
from paddock.dumps.sqlite.collations import stand_in
from paddock.dumps.sqlite.schema import Schema


def opened(path: Path, how: str = "immutable=1") -> tuple[apsw.Connection, Schema]:
    """`immutable`: no locks, no shared memory, no file beside it, also where the copy says that it has a log. What is in
    use is opened by `mode=ro`."""
    connection = apsw.Connection(
        f"file:{quote(str(path.absolute()))}?{how}",
        flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
    )
    try:
        # What the schema says is data: it may not call what has effects.
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        # A name that is not there is an error, never a string.
        connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
        connection.collation_needed(stand_in)
        found = schema.read(connection)
        values.register(connection, found.codec)
    except BaseException:
        connection.close(True)
        raise
    return connection, found
