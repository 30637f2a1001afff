"""A look: what a table's metadata and manifests say about its health. Nothing is written, and no data file is opened."""

from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent, ManifestEntry
from pyiceberg.table import Table

from paddock.engines.rewriting import Rewriter
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError
from paddock.jobs.model import JsonObject, NewJob
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.health import FOREIGN_DAYS, health_of, issues_of, other_maintainer, recommended
from paddock.maintenance.iceberg import checking
from paddock.maintenance.iceberg.choosing import Retention, choose
from paddock.maintenance.iceberg.manifesting import merge_of
from paddock.maintenance.iceberg.manifests import entries_of, manifests_of
from paddock.maintenance.iceberg.opening import load, open_catalog, refuse_managed_store, summary_of, translated
from paddock.maintenance.iceberg.planning import (
    SMALL_SHARE,
    Deletes,
    Limits,
    check_engine,
    group_of,
    packed_places,
    read_deletes,
    why_left,
)
from paddock.maintenance.model import LEVELS, LookPayload, TableName
from paddock.maintenance.policy import Policy, policy_of

PAGE = 200
# Of a page's answer: a job's result has 256 KiB.
MOST_BYTES = 180_000
# Files of a table beyond which a round does not read its manifests.
MOST_FILES = 200_000
MOST_FOREIGN = 100


def look(
    turn: Turn[LookPayload], settings: CatalogSettings, managed_store: str, rewriter: Rewriter | None = None
) -> Outcome:
    payload = turn.payload
    if payload.check:
        return done(
            {"findings": checking.findings(payload.catalog, settings, rewriter, payload.databases, tag=payload.deep)}
        )
    catalog = open_catalog(payload.catalog, settings)
    if payload.table is not None:
        return done({"tables": [_look_at(catalog, payload.table, settings, managed_store, deep=True)]})
    return _page(turn, catalog, settings, managed_store)


def _page(turn: Turn[LookPayload], catalog: Catalog, settings: CatalogSettings, managed_store: str) -> Outcome:
    """The next tables in the order of their names; whatever is listed twice or moves meanwhile is seen once at least."""
    payload = turn.payload
    after = payload.after or ()
    with translated(payload.catalog):
        names = sorted(name for name in checking.all_tables(catalog) if name > after)
    seen: list[JsonObject] = []
    size, last = 0, after
    for name in names[:PAGE]:
        turn.report(phase="looking at tables", tables=len(seen), of=len(names))
        table = TableName(catalog=payload.catalog, namespace=name[:-1], name=name[-1])
        found = _look_at(catalog, table, settings, managed_store, deep=payload.deep)
        size += len(str(found))
        if seen and size > MOST_BYTES:
            break
        seen.append(found)
        last = name
    round_id = payload.round or str(turn.id)
    more = bool(names) and last != names[-1]
    result = {"tables": seen, "round": round_id, "last": not more}
    if not more:
        return done(result)
    following = LookPayload(catalog=payload.catalog, deep=payload.deep, round=round_id, after=last)
    return done(result, follow_ups=[NewJob(turn.kind, following.model_dump(mode="json", exclude_none=True))])


def _look_at(
    catalog: Catalog, table: TableName, settings: CatalogSettings, managed_store: str, *, deep: bool
) -> JsonObject:
    """One line of the answer. What cannot be loaded keeps its row, and says why."""
    name: JsonObject = {"namespace": LEVELS.join(table.namespace), "name": table.name}
    try:
        found = load(catalog, table)
        refuse_managed_store(found, managed_store)
        with translated(table.catalog):
            return {**name, **describe(found, settings, deep=deep)}
    except InfrastructureError as problem:
        return {**name, "problem": problem.message, "code": problem.code}


def describe(table: Table, settings: CatalogSettings, *, deep: bool) -> JsonObject:
    policy = policy_of(table.metadata.properties, settings.policy)
    figures = figures_of(table, policy, deep=deep, engine=settings.engine_type)
    issues = issues_of(figures, policy)
    return {
        "uuid": str(table.metadata.table_uuid),
        "location": table.metadata.location,
        "snapshot_id": table.metadata.current_snapshot_id,
        "figures": figures,
        "issues": [issue.json_object() for issue in issues],
        "policy": policy.json_object(),
        "recommended": [each.json_object() for each in recommended(issues, figures, policy)],
        "health": health_of(issues, figures),
    }


def figures_of(table: Table, policy: Policy, *, deep: bool, engine: str = "embedded") -> JsonObject:
    metadata = table.metadata
    now = datetime.now(UTC)
    times = [snapshot.timestamp_ms for snapshot in metadata.snapshots]
    retention = Retention(timedelta(days=policy["max_snapshot_age_days"]), 1)
    figures: JsonObject = {
        "format_version": metadata.format_version,
        "snapshots": len(times),
        "expirable_snapshots": len(choose(metadata, retention, now).gone) if "main" in metadata.refs else 0,
        "oldest_snapshot": _time(min(times)) if times else None,
        "last_commit": _time(max(times)) if times else None,
        "refs": len(metadata.refs),
        "metadata_bytes": len(table.io.new_input(table.metadata_location)),
        "data_files": 0,
        "bytes": 0,
        "records": 0,
        "small_files": 0,
        "rewritable_files": 0,
        "rewritable_bytes": 0,
        "delete_files": 0,
        "manifests": 0,
        "manifest_bytes": 0,
    }
    if metadata.properties.get("gc.enabled", "true").lower() == "false":
        figures["gc_disabled"] = True
    try:
        check_engine(table, engine)
    except PermanentRunnerError as cannot:
        figures["engine_cannot"] = cannot.message
    if foreign := _foreign_rewrites(table, now):
        # Those that our statements had an engine do are taken out where the looks are merged, which knows them.
        figures["foreign_rewrites"] = foreign
        if note := other_maintainer(foreign):
            figures["other_maintainer"] = note
    if "main" in metadata.refs:
        _count_files(table, policy, figures, deep=deep, engine=engine)
    return figures


def _count_files(table: Table, policy: Policy, figures: JsonObject, *, deep: bool, engine: str) -> None:
    main = table.metadata.snapshot_by_id(table.metadata.refs["main"].snapshot_id)
    assert main is not None, "a ref names a snapshot that is there"
    manifests = manifests_of(main, table.io)
    merge = merge_of(manifests)
    figures["manifests"] = len(manifests)
    figures["manifest_bytes"] = sum(manifest.manifest_length for manifest in manifests)
    figures["mergeable_manifests"] = merge.before - merge.after
    counted = sum((each.added_files_count or 0) + (each.existing_files_count or 0) for each in manifests)
    if counted > MOST_FILES and not deep:
        _estimate(summary_of(main), policy, figures)
        return
    deletes = read_deletes(table.io, manifests)
    figures["delete_files"] = len(deletes)
    small = SmallFiles(policy, Deletes(deletes), engine)
    for manifest in manifests:
        if manifest.content != ManifestContent.DATA:
            continue
        for entry in entries_of(manifest, table.io):
            figures["data_files"] += 1
            figures["bytes"] += entry.data_file.file_size_in_bytes
            figures["records"] += entry.data_file.record_count
            figures["small_files"] += small.add(entry)
    rewritable = small.rewritable()
    figures["rewritable_files"], figures["rewritable_bytes"] = rewritable.files, rewritable.bytes
    figures["foldable_delete_files"] = len(rewritable.delete_files) if engine == "embedded" else len(deletes)


class SmallFiles:
    """What a rewrite would take, by the rules of its plan: what is counted here and left there would be asked for again and
    again. Of a file only its age and size are kept, and which deletes it is read with."""

    def __init__(self, policy: Policy, deletes: Deletes, engine: str) -> None:
        self.limits = Limits(
            policy["target_file_size_bytes"], policy["min_input_files"], policy["delete_file_threshold"]
        )
        self.deletes = deletes
        self.embedded = engine == "embedded"
        self._groups: dict[Any, _Group] = defaultdict(_Group)

    def add(self, entry: ManifestEntry) -> bool:
        """Whether it is small."""
        file, age = entry.data_file, entry.sequence_number or 0
        is_small = self.limits.is_small(file)
        deletes = self.deletes.of(file, age) if self.embedded and self.deletes.all else []
        is_left = self.embedded and why_left(file, deletes, self.limits) is not None
        if (is_small or deletes) and not is_left:
            self._groups[group_of(file)].add(age, file.file_size_in_bytes, [each.file_path for each in deletes])
        return is_small

    def rewritable(self) -> "Rewritable":
        found = Rewritable()
        for group in self._groups.values():
            for packed in group.bins(self.limits.target):
                sizes = [group.sizes[at] for at in packed]
                deletes = [group.deletes.get(at, ()) for at in packed]
                for_size = self.limits.is_worth_it(sizes)
                if for_size:
                    found.files += len(sizes)
                    found.bytes += sum(sizes)
                if for_size or any(len(each) >= self.limits.delete_files for each in deletes):
                    found.delete_files.update(*deletes)
        return found


@dataclass
class Rewritable:
    """Files that are worth a rewrite by their number or size, and the delete files that a rewrite would apply, by their paths."""

    files: int = 0
    bytes: int = 0
    delete_files: set[str] = field(default_factory=set)


class _Group:
    def __init__(self) -> None:
        self.ages, self.sizes = array("q"), array("q")
        # Of the few files that have any, by their places in those.
        self.deletes: dict[int, list[str]] = {}

    def add(self, age: int, size: int, deletes: list[str]) -> None:
        if deletes:
            self.deletes[len(self.ages)] = deletes
        self.ages.append(age)
        self.sizes.append(size)

    def bins(self, target: int) -> Iterator[list[int]]:
        in_order = sorted(range(len(self.ages)), key=self.ages.__getitem__)
        for place in packed_places([self.sizes[at] for at in in_order], target):
            yield in_order[place]


def _estimate(summary: Any, policy: Policy, figures: JsonObject) -> None:
    """By what the last writer added up; and files that are small on average are taken for small."""
    names = {
        "data_files": "total-data-files",
        "bytes": "total-files-size",
        "records": "total-records",
        "delete_files": "total-delete-files",
    }
    for ours, theirs in names.items():
        figures[ours] = int(summary.get(theirs, 0))
    if figures["bytes"] < SMALL_SHARE * policy["target_file_size_bytes"] * figures["data_files"]:
        figures["small_files"] = figures["rewritable_files"] = figures["data_files"]
        figures["rewritable_bytes"] = figures["bytes"]
    figures["estimated"] = True


def _foreign_rewrites(table: Table, now: datetime) -> list[list[Any]]:
    """Snapshot and day of each rewrite of the last days that does not say it is ours."""
    found: list[list[Any]] = []
    for snapshot in table.metadata.snapshots:
        at = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
        summary = summary_of(snapshot)
        if (
            now - at < timedelta(days=FOREIGN_DAYS)
            and summary.get("operation") == "replace"
            and "paddock.job-id" not in summary
        ):
            found.append([snapshot.snapshot_id, str(at.date())])
    return found[-MOST_FOREIGN:]


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
