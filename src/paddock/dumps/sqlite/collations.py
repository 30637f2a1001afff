"""Collations that only an application knows, so that what is sorted by one can be opened here."""

import apsw

from paddock.dumps.sqlite.quoting import fold

# SQLite brings these along.
BUILT_IN = frozenset({"binary", "nocase", "rtrim"})


def stand_in(connection: apsw.Connection, name: str) -> None:
    """For `collation_needed`: enough to read the rows, never asked for an order.

    SQLite also asks for its own collations where they are not in the encoding of the database, before it derives them
    from those in UTF-8. They are left to it: an order of ours would hide theirs, and walks by key would lose rows.
    """
    if fold(name) not in BUILT_IN:
        connection.create_collation(name, lambda one, two: (one > two) - (one < two))
