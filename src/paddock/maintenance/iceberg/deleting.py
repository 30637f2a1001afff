"""The one deleter. Nothing else in Paddock removes a file under a table.

Batches of at most a thousand. Before each: a fenced save, so that whoever lost the job stops; the table loaded again and
manifests that nobody has read yet read, so that a file which somebody uses since is kept; then the candidates checked once more.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO

from paddock.maintenance.iceberg.opening import translated
from paddock.maintenance.iceberg.reaching import Reach
from paddock.maintenance.iceberg.store import TableStore
from paddock.maintenance.iceberg.working import Work

BATCH = 1_000


class Deleted:
    """Files and bytes, counted by parts of the work. An attempt that does a part again finds all of it again, or less; so each
    part counts as far as whoever came furthest."""

    def __init__(self, before: Mapping[str, Sequence[int]] | None = None) -> None:
        self.parts: dict[str, list[int]] = {part: list(counted) for part, counted in (before or {}).items()}
        # Candidates that turned out to be in use, or that the store cannot name.
        self.kept = 0

    @property
    def files(self) -> int:
        return sum(files for files, _ in self.parts.values())

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.parts.values())

    def reached(self, part: str, files: int, size: int) -> None:
        before_files, before_size = self.parts.get(part, (0, 0))
        self.parts[part] = [max(files, before_files), max(size, before_size)]


class Spool:
    """Candidates on disk: there may be millions."""

    def __init__(self) -> None:
        self._file: IO[str] = tempfile.TemporaryFile(  # noqa: SIM115  it lives as long as the spool
            "w+", encoding="utf-8", errors="surrogateescape", newline="\n"
        )
        self.files = 0
        self.bytes = 0

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *problem: object) -> None:
        self._file.close()

    def add(self, location: str, size: int) -> None:
        if "\n" in location or "\r" in location:
            return  # nobody writes such names; one that is there stays there
        self._file.write(f"{size} {location}\n")
        self.files += 1
        self.bytes += size

    def first(self, paths: int, size: int) -> list[str]:
        """The first of them, for people: so many, and not more characters than a job's result can hold."""
        shown: list[str] = []
        for location, _ in self:
            size -= len(location)
            if len(shown) == paths or size < 0:
                break
            shown.append(location)
        return shown

    def __iter__(self) -> Iterator[tuple[str, int]]:
        self._file.seek(0)
        for line in self._file:
            size, _, location = line.rstrip("\n").partition(" ")
            yield location, int(size)


def delete(
    work: Work, store: TableStore, reach: Reach, candidates: Iterable[tuple[str, int]], deleted: Deleted, part: str
) -> None:
    waiting = iter(candidates)
    files, size = 0, 0
    while batch := list(islice(waiting, BATCH)):
        work.step(deleted=deleted.parts, deleted_files=deleted.files)
        work.save()
        with translated(work.payload.table.catalog):
            reach.add_table(work.load())
            unused = [each for each in batch if each[0] not in reach.files and store.can_delete(each[0])]
            store.delete([location for location, _ in unused])
        files += len(unused)
        size += sum(its_size for _, its_size in unused)
        deleted.reached(part, files, size)
        deleted.kept += len(batch) - len(unused)
        work.turn.report(phase="deleting files", files=deleted.files, bytes=deleted.bytes)
