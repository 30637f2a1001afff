"""A draft in a folder, and its files read back."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from paddock.exports.writing.options import Format, OutputOptions
from paddock.exports.writing.output import Output
from paddock.storage.drafts import Draft, DraftFile, new_draft_id
from paddock.storage.scratch import Scratch
from paddock.storage.store import open_store


@dataclass
class Place:
    folder: Path
    draft: Draft
    scratch: Scratch

    def begin(self) -> None:
        self.draft = Draft(self.draft.store, "exports/e1", new_draft_id())

    def path(self, part: DraftFile) -> Path:
        return self.folder / "store" / self.draft.prefix / part.name

    def scratch_files(self) -> list[str]:
        return [path.name for path in self.scratch.folder.iterdir()]


@contextmanager
def place(folder: Path | None = None, budget: int = 1 << 30) -> Iterator[Place]:
    with TemporaryDirectory(dir=folder) as name:
        root = Path(name)
        scratch = Scratch(root / "scratch", budget)
        try:
            yield Place(root, Draft(open_store(str(root / "store")), "exports/e1", new_draft_id()), scratch)
        finally:
            scratch.close()


async def write(
    at: Place,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    file_format: Format = "parquet",
    options: OutputOptions | None = None,
    **more: int,
) -> list[DraftFile]:
    output = Output(at.draft, at.scratch, schema, file_format, options, **more)
    try:
        for batch in batches:
            await output.write(batch)
        parts = await output.close()
    finally:
        await output.abandon()
    assert output.rows == sum(part.rows for part in parts)
    assert output.bytes == sum(at.path(part).stat().st_size for part in parts)
    assert at.scratch_files() == []
    assert at.scratch.used == 0
    return parts


def read_parquet(at: Place, parts: Sequence[DraftFile]) -> pa.Table:
    return pa.concat_tables([pq.ParquetFile(at.path(part)).read() for part in parts])


def text_of(at: Place, part: DraftFile, compression: str | None = None) -> str:
    with pa.input_stream(str(at.path(part)), compression=compression) as stream:
        return str(stream.read(), "utf-8")
