"""What works with a catalog, step by step: whether it opens, what it lists, whether a table loads, keeps a tag, and has its files
where they are found. A tag is a commit, and is tried only where that was asked for.
"""

import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from paddock.amounts import several
from paddock.engines.rewriting import Rewriter
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError
from paddock.jobs.model import JsonObject
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import committing
from paddock.maintenance.iceberg.opening import load, open_catalog, translated
from paddock.maintenance.iceberg.store import open_table_store
from paddock.maintenance.model import FENCE_PREFIX, TableName
from paddock.maintenance.policy import policy_of
from paddock.maintenance.remote.statements import current_snapshot

CHECK_PREFIX = f"{FENCE_PREFIX}check-"
LONGEST_CHECK = timedelta(hours=1)
# How many tables are loaded to find one for the tag.
LOOKED_AT = 20


def findings(
    name: str,
    settings: CatalogSettings,
    rewriter: Rewriter | None = None,
    databases: Sequence[str] | None = None,
    *,
    tag: bool = False,
) -> list[JsonObject]:
    """`databases`: only these may be told of; None: all. `tag`: whether one is tried."""
    found: list[JsonObject] = []
    steps = _steps(name, settings, rewriter, databases, tag)
    what = "load"
    try:
        for what, message in steps:
            if message is not None:
                found.append({"what": what, "ok": True, "message": message, "hint": None})
    except InfrastructureError as problem:
        found.append({"what": what, "ok": False, "message": problem.message, "hint": problem.hint})
    return found


def _steps(
    name: str, settings: CatalogSettings, rewriter: Rewriter | None, databases: Sequence[str] | None, tag: bool
) -> Iterator[tuple[str, str | None]]:
    """Each step by its name before it is tried, and again with what it found."""
    yield "load", None
    catalog = open_catalog(name, settings)
    yield "load", f"A catalog of type {settings.type}."

    yield "list", None
    with translated(name):
        tables = sorted(each for each in all_tables(catalog) if databases is None or ".".join(each[:-1]) in databases)
    yield "list", f"{several(len(tables), 'table')}."
    if not tables:
        return

    yield "table", None
    first = TableName(catalog=name, namespace=tables[0][:-1], name=tables[0][-1])
    table = load(catalog, first)
    yield "table", f"{first.database}.{first.name} has format version {table.metadata.format_version}."

    if tag and settings.fence:
        yield "tag", None
        maintained = _maintained(catalog, name, settings, tables)
        if maintained is None:
            looked_at = several(min(len(tables), LOOKED_AT), "table")
            yield "tag", f"Not tried: of {looked_at} none is maintained and has a snapshot."
        else:
            yield "tag", _keeps_tags(catalog, maintained)

    yield "store", None
    with translated(name):
        store = open_table_store(table.io.properties, table.metadata.location)
        store.modified(table.metadata_location)
        listed = sum(1 for _ in islice(store.list(table.metadata.location), 1000))
    yield "store", f"{listed:,}{'+' if listed == 1000 else ''} files under {table.metadata.location}."

    if rewriter is not None:
        yield "engine", None
        yield "engine", _seen_by(rewriter, settings, first, table)


def _maintained(
    catalog: Catalog, name: str, settings: CatalogSettings, tables: Sequence[tuple[str, ...]]
) -> TableName | None:
    """The first table that Paddock may maintain, those first that it maintains without being asked."""
    unasked = sorted(tables, key=lambda each: ".".join(each[:-1]) not in settings.databases)
    for each in unasked[:LOOKED_AT]:
        found = TableName(catalog=name, namespace=each[:-1], name=each[-1])
        try:
            table = load(catalog, found)
        except PermanentRunnerError:  # it is that table's own trouble, which a look tells
            continue
        policy = policy_of(table.metadata.properties, settings.policy)
        if policy["maintenance_enabled"] and MAIN_BRANCH in table.metadata.refs:
            return found
    return None


def _keeps_tags(catalog: Catalog, name: TableName) -> str:
    """By a tag that is set and taken away again. It is called as fences are: should this die in between, the next maintenance of
    the table takes it away."""
    tag = f"{CHECK_PREFIX}{int(time.time())}-{uuid4().hex[:12]}"

    def set_it(table: Table) -> None:
        committing.set_check_tag(catalog, table, tag, _left_over(table))

    def remove_it(table: Table) -> None:
        committing.remove_check_tag(catalog, table, tag)

    for commit_it, is_there in ((set_it, True), (remove_it, False)):
        for left in reversed(range(committing.TRIES)):
            try:
                with translated(name.catalog, committing.Conflict):
                    commit_it(load(catalog, name))
                break
            except committing.Conflict as conflict:
                if not left:
                    raise _no_tags(name, str(conflict)) from conflict
        if (tag in load(catalog, name).metadata.refs) != is_there:
            raise _no_tags(name, "it took the commit, and the tag is as before")
    return f"{name.database}.{name.name} keeps a tag, which protects it while it is maintained."


def _left_over(table: Table) -> list[str]:
    """Tags of checks that died before they took theirs away. A younger one may be that of a check at work; one without a time
    was set by a version before."""
    oldest = time.time() - LONGEST_CHECK.total_seconds()
    return [name for name in table.metadata.refs if name.startswith(CHECK_PREFIX) and _set_at(name) < oldest]


def _set_at(tag: str) -> int:
    at, dash, _ = tag.removeprefix(CHECK_PREFIX).partition("-")
    return int(at) if dash and at.isdecimal() else 0


def _no_tags(name: TableName, why: str) -> PermanentRunnerError:
    return PermanentRunnerError(
        f"The catalog '{name.catalog}' keeps no tag of {name.database}.{name.name}: {why}",
        code="no_tags",
        hint="Maintenance is protected by tags. Grant the login the right to commit; for a catalog that has no tags say "
        "`fence = false`.",
    )


def _seen_by(rewriter: Rewriter, settings: CatalogSettings, name: TableName, table: Table) -> str:
    """The engine's own view: a snapshot's id is random, so the same one is the same table."""
    ours = table.metadata.current_snapshot_id
    rows = rewriter.rows(current_snapshot(rewriter.type, settings.engine_catalog or "", name))
    theirs = int(str(rows[0][0])) if rows else None
    if theirs != ours:
        raise PermanentRunnerError(
            f"'{rewriter.name}' sees another {name.database}.{name.name} in its catalog '{settings.engine_catalog}': snapshot "
            f"{theirs} is current there, and {ours} here.",
            code="engine_sees_another",
            hint="Name in `engine_catalog` what the engine calls this very catalog. A write in this moment looks the same.",
        )
    return f"'{rewriter.name}' sees {name.database}.{name.name} as it is."


def all_tables(catalog: Catalog) -> Iterator[tuple[str, ...]]:
    waiting = list(catalog.list_namespaces())
    known = set(waiting)
    while waiting:
        namespace = waiting.pop()
        yield from (tuple(name) for name in catalog.list_tables(namespace))
        for inner in catalog.list_namespaces(namespace):
            if inner not in known and len(inner) > len(namespace):
                known.add(inner)
                waiting.append(inner)
