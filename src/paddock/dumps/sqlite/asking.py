"""The one place where a query is put together: of our own expressions, and of names that are quoted."""

from collections.abc import Sequence
from typing import Any

import apsw


def ask(connection: apsw.Connection, what: str, source: str, bindings: Sequence[Any] = ()) -> apsw.Cursor:
    return connection.execute(f"SELECT {what} FROM {source}", bindings)  # noqa: S608 - see above
