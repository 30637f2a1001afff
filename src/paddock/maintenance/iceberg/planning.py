"""Which files become one: bins of small files, each of one partition of one spec, worst partitions first.

Nothing is rewritten that a delete may apply to, unless the deletes are positions, which are applied: an equality delete names
rows by their values, and a new file would have to be proved free of them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from paddock.jobs.errors import PermanentRunnerError
from paddock.maintenance.iceberg.manifests import entries_of, manifests_of

SMALL_SHARE = 0.75
# Of (spec id, partition values): what a file belongs to.
Group = tuple[int, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Source:
    file: DataFile
    sequence_number: int
    manifest_path: str
    deletes: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Bin:
    """Files that become one."""

    group: Group
    sources: tuple[Source, ...]

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(source.file.file_path for source in self.sources)

    @property
    def bytes(self) -> int:
        return sum(source.file.file_size_in_bytes for source in self.sources)


@dataclass(frozen=True, slots=True)
class Delete:
    file: DataFile
    sequence_number: int
    manifest_path: str


@dataclass
class Plan:
    snapshot_id: int
    # Of the snapshot that was read: new files keep it, so that what was deleted since still applies to them.
    sequence_number: int
    bins: list[Bin] = field(default_factory=list)
    # Manifests that were read for this plan, of data and of deletes.
    known_manifests: set[str] = field(default_factory=set)
    files: int = 0
    bytes: int = 0
    # Files that wait: past the limit of bytes, of another format, under an equality delete, or too few to be worth it.
    left: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def chosen_files(self) -> int:
        return sum(len(each.sources) for each in self.bins)

    @property
    def chosen_bytes(self) -> int:
        return sum(each.bytes for each in self.bins)


def check_engine(table: Table, engine: str = "embedded") -> None:
    """Before any work: what the engine that rewrites this catalog's tables cannot rewrite."""
    problem = _cannot(table, engine)
    if problem is not None:
        whose = "The embedded engine" if engine == "embedded" else engine.capitalize()
        raise PermanentRunnerError(
            f"{whose} cannot rewrite {'.'.join(table.name())}: {problem}.",
            code="engine_cannot",
            hint="Spark can: name an engine of type spark as `rewrites` of this catalog. Snapshots and orphans can be "
            "removed here all the same.",
        )


def _cannot(table: Table, engine: str) -> str | None:
    metadata = table.metadata
    if engine == "spark":
        return None
    if metadata.format_version > 2:
        return f"it has format version {metadata.format_version}, and v1 and v2 are rewritten there"
    if any(name.startswith("encryption.") for name in metadata.properties):
        return "it is encrypted"
    written = metadata.properties.get("write.format.default", "parquet").lower()
    if engine == "embedded" and written != "parquet":
        return f"it is written as {written}, and only Parquet is rewritten here"
    return None


@dataclass(frozen=True, slots=True)
class Limits:
    """What makes files small, and a rewrite of them worth it."""

    target: int
    min_input_files: int
    # So many delete files that one data file is read with.
    delete_files: int

    def is_small(self, file: DataFile) -> bool:
        return bool(file.file_size_in_bytes < SMALL_SHARE * self.target)

    def is_worth_it(self, sizes: Sequence[int]) -> bool:
        return len(sizes) >= self.min_input_files or (len(sizes) > 1 and sum(sizes) >= self.target // 2)


def plan_rewrite(table: Table, limits: Limits, *, max_bytes: int) -> Plan:
    main = table.metadata.refs[MAIN_BRANCH]
    snapshot = table.metadata.snapshot_by_id(main.snapshot_id)
    assert snapshot is not None, "a ref names a snapshot that is there"
    plan = Plan(snapshot.snapshot_id, snapshot.sequence_number or 0)
    manifests = manifests_of(snapshot, table.io)
    plan.known_manifests.update(manifest.manifest_path for manifest in manifests)
    deletes = Deletes(read_deletes(table.io, manifests))
    groups: dict[Group, list[Source]] = defaultdict(list)
    for manifest in manifests:
        if manifest.content != ManifestContent.DATA:
            continue
        for entry in entries_of(manifest, table.io):
            file = entry.data_file
            plan.files += 1
            plan.bytes += file.file_size_in_bytes
            found = deletes.of(file, entry.sequence_number or 0)
            if not limits.is_small(file) and not found:
                continue
            if why := why_left(file, found, limits):
                plan.left[why] += 1
            else:
                source = Source(file, entry.sequence_number or 0, manifest.manifest_path, tuple(found))
                groups[group_of(file)].append(source)
    _fill(plan, groups, limits, max_bytes)
    return plan


def why_left(file: DataFile, deletes: Sequence[DataFile], limits: Limits) -> str | None:
    """Why the embedded engine does not rewrite a file that is small, or to which these deletes may apply."""
    if any(each.file_format != FileFormat.PARQUET for each in (file, *deletes)):
        return "other_formats"
    if any(each.content == DataFileContent.EQUALITY_DELETES for each in deletes):
        return "equality_deletes"
    if not limits.is_small(file) and len(deletes) < limits.delete_files:
        return "few_deletes"
    return None


def _fill(plan: Plan, groups: Mapping[Group, list[Source]], limits: Limits, max_bytes: int) -> None:
    taken = 0
    for group, sources in sorted(groups.items(), key=lambda item: -len(item[1])):
        # In the order in which they were written, so that what belongs together by time stays together.
        in_order = sorted(sources, key=lambda each: each.sequence_number)
        for place in packed_places([_bytes(source) for source in in_order], limits.target):
            packed = in_order[place]
            if not limits.is_worth_it([_bytes(source) for source in packed]) and not any(
                len(source.deletes) >= limits.delete_files for source in packed
            ):
                plan.left["too_few"] += len(packed)
            elif taken and taken + sum(map(_bytes, packed)) > max_bytes:
                plan.left["next_time"] += len(packed)
            else:
                taken += sum(map(_bytes, packed))
                plan.bins.append(Bin(group, tuple(packed)))


def packed_places(sizes: Sequence[int], target: int) -> Iterator[slice]:
    """Which files of a group, in their order, become one. The plan and the look go by this and by `Limits`."""
    start, size = 0, 0
    for place, each in enumerate(sizes):
        if place > start and size + each > target:
            yield slice(start, place)
            start, size = place, 0
        size += each
    if start < len(sizes):
        yield slice(start, len(sizes))


def _bytes(source: Source) -> int:
    return source.file.file_size_in_bytes


def group_of(file: DataFile) -> Group:
    return file.spec_id, partition_values(file)


def partition_values(file: DataFile) -> tuple[Any, ...]:
    return tuple(file.partition[at] for at in range(len(file.partition)))


def read_deletes(io: FileIO, manifests: Sequence[ManifestFile], known: set[str] | None = None) -> list[Delete]:
    """The delete files of these manifests; without those whose manifest is known already."""
    return [
        Delete(entry.data_file, entry.sequence_number or 0, manifest.manifest_path)
        for manifest in manifests
        if manifest.content == ManifestContent.DELETES and manifest.manifest_path not in (known or ())
        for entry in entries_of(manifest, io)
    ]


class Deletes:
    """Which delete files may apply to a data file, as the table specification has it; where it is not certain, they may."""

    def __init__(self, deletes: list[Delete]) -> None:
        self.all = deletes
        self._by_group: dict[Group, list[Delete]] = defaultdict(list)
        self._everywhere: list[Delete] = []
        for each in deletes:
            if each.file.content == DataFileContent.EQUALITY_DELETES and not partition_values(each.file):
                self._everywhere.append(each)
            else:
                self._by_group[group_of(each.file)].append(each)

    def of(self, file: DataFile, sequence_number: int) -> list[DataFile]:
        return [
            each.file
            for each in (*self._everywhere, *self._by_group.get(group_of(file), ()))
            if _applies(each, file, sequence_number)
        ]


def _applies(delete: Delete, file: DataFile, sequence_number: int) -> bool:
    if delete.file.content == DataFileContent.EQUALITY_DELETES:
        return delete.sequence_number > sequence_number
    if delete.sequence_number < sequence_number:
        return False
    # Bounds of the column `file_path` (2147483546) say which files a position delete names, where a writer kept them whole.
    lower, upper = (bounds or {} for bounds in (delete.file.lower_bounds, delete.file.upper_bounds))
    path = file.file_path.encode()
    first, last = lower.get(PATH_FIELD), upper.get(PATH_FIELD)
    # They may have been cut short: only what the path does not even begin with is another file.
    return not (first is not None and first == last and not path.startswith(first))


PATH_FIELD = 2147483546
