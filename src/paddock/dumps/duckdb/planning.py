"""The order in which all of a database is made again: found by making it, without rows, in a scratch database.

DuckDB keeps no record of what a view or a macro uses. Whatever cannot be made yet is tried again after the rest. What
still cannot be made was broken before: a view of a table that is gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from paddock.dumps.duckdb import connecting
from paddock.dumps.duckdb.catalog import CreateStatement, Key
from paddock.dumps.duckdb.rendering import Stored
from paddock.dumps.model import DumpOptions
from paddock.engines.children.quoting import quoted
from paddock.jobs.errors import PermanentRunnerError

_RANK = {"schema": 0, "type": 1, "sequence": 2, "macro": 3, "table": 4, "view": 5, "index": 6}


@dataclass(frozen=True, slots=True)
class Plan:
    """Statements before and after the rows, and what was broken in the database itself."""

    before: Sequence[str]
    after: Sequence[str]
    broken: Sequence[CreateStatement] = ()


def chosen(tables: Sequence[Stored], keys: Sequence[Key], options: DumpOptions) -> list[Stored]:
    """Those asked for; a table after those that its foreign keys name."""
    known = {table.display_name: table for table in tables}
    for name in [*options.tables, *options.exclude_tables]:
        if name not in known:
            raise PermanentRunnerError(
                f"Table '{name}' does not exist.",
                code="unknown_table",
                hint="Names are as the database spells them; outside of the schema main, schema.table.",
            )
    wanted = [name for name in known if not options.tables or name in options.tables]
    left, ordered = [name for name in wanted if name not in options.exclude_tables], list[str]()
    parents = {name: {key.parent for key in keys if key.table == name} - {name} for name in left}
    while left:
        # DuckDB cannot make a circle of keys: none can be added to a table that is there.
        ordered += [name for name in left if not parents[name] & set(left)] or left
        left = [name for name in left if name not in ordered]
    return [known[name] for name in ordered]


def planned(made: Sequence[CreateStatement], tables: Sequence[Stored], database: str, *, some: bool) -> Plan:
    """`some`: not all tables are there, so it is no news that some views cannot be."""
    order = {table.display_name: number for number, table in enumerate(tables)}
    ranked = sorted(made, key=lambda one: (_RANK[one.kind], order[one.name] if one.kind == "table" else 0))
    done, later, broken = _tried(ranked, database)
    lost = [one for one in broken if one.kind in {"table", "index"}]
    if lost:
        raise PermanentRunnerError(
            f"The {lost[0].kind} '{lost[0].name}' cannot be made again from what DuckDB says of it: {lost[0].sql}",
            code="not_writable",
            hint="Dump it as JSON or CSV, or leave it out with exclude_tables.",
        )
    # In the order in which it worked, but indexes after rows: they are built faster than they are kept up.
    last = max((number for number, one in enumerate(done) if one.kind == "table"), default=-1)
    before = [one for one in done[: last + 1] if one.kind != "index"]
    after = [one for one in done if one not in before]
    return Plan([one.sql for one in before], [*(one.sql for one in after), *later], [] if some else broken)


def _tried(
    wanted: Sequence[CreateStatement], database: str
) -> tuple[list[CreateStatement], list[str], list[CreateStatement]]:
    """What could be made, in the order in which it could; what may follow it; and what could not."""
    connection = connecting.scratch()
    try:
        connection.execute(f"ATTACH ':memory:' AS {quoted(database)}")
        connection.execute(f"USE {quoted(database)}")
        connecting.lock(connection)
        done: list[CreateStatement] = []
        left = list(wanted)
        while left:
            failed = [made for made in left if not _works(connection, made.sql)]
            done += [made for made in left if made not in failed]
            if len(failed) == len(left):
                break
            left = failed
        # DuckDB refuses comments on columns that a view renames, though it shows them.
        later = [statement for made in done for statement in made.later if _works(connection, statement)]
        return done, later, left
    finally:
        connection.close()


def _works(connection: duckdb.DuckDBPyConnection, statement: str) -> bool:
    try:
        connection.execute(statement)
    except duckdb.Error:
        return False
    return True
