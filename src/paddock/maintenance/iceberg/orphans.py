"""`remove_orphan_files`: what lies under a table and no metadata leads to, because a writer died or gave up.

A file is an orphan only when nothing speaks for it: it lies under the table's own location, is old, is named as Iceberg's writers
name files, no part of its path is hidden, and nothing reaches it. Where the location may belong to another table too, nothing is
removed: what another catalog has registered there is invisible from here.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyiceberg.table import Table

from paddock.amounts import several, size
from paddock.jobs.errors import PermanentRunnerError
from paddock.maintenance.iceberg.deleting import Deleted, Spool, delete
from paddock.maintenance.iceberg.expiring import GC_OFF, MOST_PATHS, PATHS_SIZE, garbage_is_ours, store_of
from paddock.maintenance.iceberg.opening import translated
from paddock.maintenance.iceberg.reaching import Reach
from paddock.maintenance.iceberg.store import Listed, TableStore
from paddock.maintenance.iceberg.working import Work
from paddock.maintenance.model import Action, Outcome
from paddock.maintenance.paths import overlapping, path_of

ACTION: Action = "remove_orphan_files"
DEFAULT_AGE = timedelta(days=3)
METADATA = (".metadata.json", ".metadata.json.gz")
SUFFIXES = (".parquet", ".orc", ".avro", ".puffin", ".stats", *METADATA)
MOST_SHARE, FEW = 0.2, 10
BEGINNING = 64 << 10
GZIP = b"\x1f\x8b"
OWN_UUID = re.compile(rb'"table-uuid"\s*:\s*"([0-9A-Fa-f-]{36})"')


@dataclass
class FoundOrphans:
    spool: Spool
    files: int = 0
    bytes: int = 0
    # Under the location, of a table that is not this one.
    foreign: list[str] = field(default_factory=list)


def remove_orphan_files(work: Work) -> Outcome:
    table = work.load()
    if not garbage_is_ours(table):
        return Outcome(action=ACTION, outcome="skipped", message=GC_OFF)
    with Spool() as spool:
        return _remove(work, table, spool)


def _remove(work: Work, table: Table, spool: Spool) -> Outcome:
    store, reach = store_of(table), Reach()
    with translated(work.payload.table.catalog):
        found = find(work, table, store, reach, spool)
    if problem := refusal(work, table, found):
        raise problem
    deleted = Deleted((work.state["step"] or {}).get("deleted"))
    # What an earlier attempt deleted is not found again: each counts its own.
    delete(work, store, reach, found.spool, deleted, str(work.turn.attempt_id))
    return Outcome(
        action=ACTION,
        outcome="success",
        message=f"{several(deleted.files, 'file')} deleted, to which nothing led.",
        files_before=found.files,
        files_after=found.files - deleted.files,
        bytes_before=found.bytes,
        bytes_after=found.bytes - deleted.bytes,
        bytes_freed=deleted.bytes,
        details={"deleted_files": deleted.files, "kept_candidates": deleted.kept},
    )


def plan(work: Work, table: Table) -> Outcome:
    """Exact for the moment that it was made, from which the ages count: the real run's begin with a commit of its own."""
    if not garbage_is_ours(table):
        return Outcome(action=ACTION, outcome="skipped", message=GC_OFF)
    with Spool() as spool:
        with translated(work.payload.table.catalog):
            found = find(work, table, store_of(table), Reach(), spool, at=datetime.now(UTC))
        paths = spool.first(MOST_PATHS, PATHS_SIZE)
    problem = refusal(work, table, found)
    told = f"{found.spool.files:,} of {several(found.files, 'file')} would be deleted, {size(found.spool.bytes)}."
    return Outcome(
        action=ACTION,
        outcome="skipped" if problem is not None else "success",
        message=told if problem is None else f"{told} It would be refused: {problem.message}",
        error=None if problem is None else problem.code,
        files_before=found.files,
        files_after=found.files - found.spool.files,
        bytes_freed=found.spool.bytes,
        details={"deleted_files": found.spool.files, "paths": paths},
    )


def find(
    work: Work, table: Table, store: TableStore, reach: Reach, spool: Spool, at: datetime | None = None
) -> FoundOrphans:
    """Everything that is listed is looked at after everything that is reachable was read: a file that is committed in between is
    young, and the deleter looks once more."""
    hours = work.payload.options.older_than_hours
    age = DEFAULT_AGE if hours is None else timedelta(hours=hours)
    written = store.modified(table.metadata_location)
    before = max(written, at or written) - age
    reach.add_table(table)
    found = FoundOrphans(spool)
    for listed in _listed(work, table, store):
        found.files += 1
        found.bytes += listed.size
        if listed.location in reach.files:
            continue
        if listed.location.endswith(METADATA) and not _is_own(table, listed):
            found.foreign.append(listed.location)
        elif listed.modified < before and _may_go(table, listed):
            found.spool.add(listed.location, listed.size)
    return found


def _listed(work: Work, table: Table, store: TableStore) -> Iterator[Listed]:
    """Without what lies in the location of another known table inside this one: that is never looked at."""
    own = path_of(table.metadata.location).rstrip("/") + "/"
    inner = [
        path_of(other).rstrip("/") + "/"
        for other in work.payload.other_locations
        if path_of(other).rstrip("/") + "/" != own and path_of(other).startswith(own)
    ]
    for listed in store.list(table.metadata.location):
        if not path_of(listed.location).startswith(tuple(inner)):
            yield listed


def _may_go(table: Table, listed: Listed) -> bool:
    inside = path_of(listed.location).removeprefix(path_of(table.metadata.location).rstrip("/") + "/")
    hidden = any(part.startswith(("_", ".")) for part in inside.split("/"))
    return listed.location.lower().endswith(SUFFIXES) and not hidden and inside != path_of(listed.location)


def _is_own(table: Table, listed: Listed) -> bool:
    """An old metadata file of this very table, by its uuid; one that cannot be read is somebody else's. Writers put the uuid
    among the first fields, and there may be thousands of files: only their beginning is read."""
    try:
        with table.io.new_input(listed.location).open(seekable=False) as stream:
            start = stream.read(BEGINNING)
        if start.startswith(GZIP):
            start = zlib.decompressobj(wbits=31).decompress(start, BEGINNING)
    except (OSError, ValueError, zlib.error):
        return False
    found = OWN_UUID.search(start)
    return found is not None and found[1].decode().lower() == str(table.metadata.table_uuid)


def refusal(work: Work, table: Table, found: FoundOrphans) -> PermanentRunnerError | None:
    """Why nothing is removed; an operator who has looked may confirm."""
    if work.payload.confirm:
        return None
    others = [other for other in work.payload.other_locations if overlapping(other, table.metadata.location)]
    if others:
        return PermanentRunnerError(
            f"Another known table lies inside or around {table.metadata.location}: {others[0]}.",
            code="location_shared",
            hint="Give each table a location of its own. An operator who has looked may `confirm`.",
        )
    if found.foreign:
        return PermanentRunnerError(
            f"The metadata of another table lies under this one's location: {found.foreign[0]}.",
            code="location_shared",
            hint="Is it a nested table, or one that was dropped? An operator who has looked may `confirm`.",
        )
    many = found.spool.files > FEW
    share = max(found.spool.files / (found.files or 1), found.spool.bytes / (found.bytes or 1))
    if many and share > MOST_SHARE:
        return PermanentRunnerError(
            f"{found.spool.files:,} of {found.files:,} files look like orphans, {share:.0%} of them by number or size.",
            code="too_many_orphans",
            hint="Look at them first: `paddock tables plan`. An operator who has looked may `confirm`.",
        )
    return None
