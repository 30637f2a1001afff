"""The files of one export: batches in, uploaded and checked files out.

    output = Output(draft, scratch, schema, "parquet", OutputOptions())
    async for batch in stream.batches():
        await output.write(batch)
    parts = await output.close()            # or, whatever went wrong: await output.abandon()

- Order is kept: the rows stand in the files, and the files in their numbers, as they came.
- Row groups have at most `row_group_rows` rows and about 32 MiB of Arrow. Files roll on encoded bytes, early when the
  scratch space is pressed, and before rows that the open file's encodings cannot hold. A finished file is read back,
  uploaded, and removed from the disk, before the next begins.
- No rows give one file with the columns and their types.
- With `partition_by` all rows go through one scratch file (`spill`): a partition's files are written together, at
  `close` or when the scratch space gets short, in the order of the partitions' values.
- Killed on any line this leaves a draft without a manifest, and scratch files that the next process removes.

Memory: one row group, one batch, and what encoding one group takes. `Output.reservation` says how much that is.
"""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import pyarrow as pa

from paddock.exports.writing.collecting import GROUP_BYTES, Collector
from paddock.exports.writing.files import File, open_file
from paddock.exports.writing.options import Format, OutputOptions, ending
from paddock.exports.writing.partitions import Partitions, partition_columns
from paddock.exports.writing.schemas import check_schema, file_schema
from paddock.exports.writing.spill import Spill
from paddock.jobs.errors import PermanentRunnerError, UserMistake
from paddock.storage.drafts import Draft, DraftFile
from paddock.storage.scratch import Scratch, ScratchFile
from paddock.storage.threads import on_cpu

# What an engine sends at once, at most.
BATCH_BYTES = 8 << 20
# What encoding a flat group as Parquet takes beside it: a page of one column, and a few rows to choose encodings by.
ENCODING_BYTES = 8 << 20
# What an upload takes: by then the rows are on the disk.
UPLOAD_BYTES = 32 << 20

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class Output:
    def __init__(
        self,
        draft: Draft,
        scratch: Scratch,
        schema: pa.Schema,
        file_format: Format = "parquet",
        options: OutputOptions | None = None,
        *,
        group_bytes: int = GROUP_BYTES,
    ) -> None:
        """Raises PermanentRunnerError for what no row could change: a type the format cannot hold, a column to
        partition by that is not there."""
        self.options = options or OutputOptions()
        self.format = file_format
        # As it is in the files: names unique, columns to partition by included.
        self.schema = file_schema(schema)
        self.rows = 0
        self.parts: list[DraftFile] = []
        self._incoming = schema
        self._group_bytes = group_bytes
        check_schema(self.schema, file_format, self.options)
        columns = partition_columns(self.schema, self.options.partition_by)
        self._partitions = Partitions(self.schema, columns) if columns else None
        self._spill: Spill | None = None
        self._collector = self._new_collector(self.schema)
        self._files = _Files(draft, scratch, file_format, self.options, self.parts)
        self._scratch = scratch

    @staticmethod
    def reservation(
        schema: pa.Schema, file_format: Format, options: OutputOptions, group_bytes: int = GROUP_BYTES
    ) -> int:
        """Bytes of memory for one Output. A piece of text, and the levels of nested values, can be as large as the group
        they are of; a partitioned export has the group once more, sorted."""
        width = _fixed_width(schema)
        group = group_bytes if width is None else min(group_bytes, width * options.row_group_rows)
        unfolded = file_format != "parquet" or any(map(pa.types.is_nested, schema.types))
        copies = 1 + unfolded + bool(options.partition_by)
        return BATCH_BYTES + max(ENCODING_BYTES + copies * group, UPLOAD_BYTES)

    @property
    def bytes(self) -> int:
        """Encoded so far. Of a partitioned export this is an estimate until `close`: its rows are still in the spill."""
        return (
            sum(part.bytes for part in self.parts) + self._files.open_bytes + (self._spill.bytes if self._spill else 0)
        )

    async def write(self, batch: pa.RecordBatch) -> None:
        batch = self._fitted(batch)
        for group in self._collector.add(batch):
            await self._write(group)
        self.rows += batch.num_rows

    async def close(self) -> list[DraftFile]:
        """Everything is in the store. The draft is not sealed: that is the caller's."""
        if (group := self._collector.rest()) is not None:
            await self._write(group)
        del group  # an upload needs the room
        if self._partitions is not None:
            await self._drain(self._partitions)
        await self._files.roll()
        if not self.parts:
            await self._files.write(self.schema, None, "")
            await self._files.roll()
        return self.parts

    async def abandon(self) -> None:
        """Frees disk and memory; what was uploaded belongs to the draft. May be called at any time, and again."""
        self._collector = self._new_collector(self.schema)
        self._files.drop()
        if self._spill is not None:
            self._spill.remove()
            self._spill = None

    def _new_collector(self, schema: pa.Schema) -> Collector:
        return Collector(schema, self.options.row_group_rows, self._group_bytes)

    async def _write(self, group: pa.Table) -> None:
        if self._partitions is None:
            await self._files.write(self.schema, group, "")
            return
        if self._spill is None:
            self._spill = Spill(self._scratch)
        await _encode(_spill, self._partitions, self._spill, group)
        # Half of the space for the spill, the rest for the files it becomes.
        if self._scratch.pressed or self._spill.bytes * 2 > self._scratch.budget:
            await self._drain(self._partitions)

    async def _drain(self, partitions: Partitions) -> None:
        """From the spill to files, one partition after another."""
        if (spill := self._spill) is None:
            return
        schema = pa.schema([self.schema.field(name) for name in partitions.rest])
        spilled = spill.folders()
        await _encode(spill.flush)
        for folder in partitions.ordered():
            if folder not in spilled:
                continue
            collector = self._new_collector(schema)
            for run in spill.runs(folder):
                for batch in await _encode(spill.read, run):
                    for group in collector.add(batch):
                        await self._files.write(schema, group, folder)
            if (rest := collector.rest()) is not None:
                await self._files.write(schema, rest, folder)
            await self._files.roll()
        spill.remove()
        self._spill = None

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch under the names and types of the files. An engine that sends other columns than it declared is
        wrong about something: nothing is cast into place."""
        if batch.schema.types != self._incoming.types:
            raise PermanentRunnerError(
                f"The engine sent columns of the types {', '.join(map(str, batch.schema.types))} after it had declared"
                f" {', '.join(map(str, self._incoming.types))}.",
                code="schema_changed",
                hint="Please report it; a cast of the column in the query may help meanwhile.",
            )
        if batch.schema.types != self.schema.types:
            columns = [
                array if array.type == type else array.cast(type)
                for array, type in zip(batch.columns, self.schema.types, strict=True)
            ]
            return pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)


class _Files:
    """At most one open file. Numbers go on for each folder: no name is used twice."""

    def __init__(
        self, draft: Draft, scratch: Scratch, file_format: Format, options: OutputOptions, parts: list[DraftFile]
    ) -> None:
        self._draft = draft
        self._scratch = scratch
        self._format: Format = file_format
        self._options = options
        self._parts = parts
        self._numbers: dict[str, int] = {}
        self._folder = ""
        self._open: tuple[ScratchFile, File] | None = None

    @property
    def open_bytes(self) -> int:
        return self._open[0].bytes if self._open else 0

    async def write(self, schema: pa.Schema, group: pa.Table | None, folder: str) -> None:
        if self._open is not None and group is not None and not await _encode(self._open[1].takes, group):
            await self.roll()
        if self._open is None:
            self._folder = folder
            await _encode(self._begin, schema, group)
        assert self._open is not None
        assert folder == self._folder
        scratch_file, file = self._open
        if group is not None:
            await _encode(file.write, group)
        if scratch_file.bytes >= self._options.file_bytes or self._scratch.pressed:
            await self.roll()

    async def roll(self) -> None:
        if self._open is None:
            return
        scratch_file, file = self._open
        await _encode(file.finish)
        number = self._numbers.get(self._folder, 0)
        self._numbers[self._folder] = number + 1
        name = f"part-{number:05d}{ending(self._format, self._options)}"
        part = await self._draft.add(scratch_file, f"{self._folder}/{name}" if self._folder else name)
        self._parts.append(part)
        self._open = None
        scratch_file.remove()

    def drop(self) -> None:
        if self._open is not None:
            scratch_file, file = self._open
            file.drop()
            scratch_file.remove()
            self._open = None

    def _begin(self, schema: pa.Schema, first: pa.Table | None) -> None:
        scratch_file = self._scratch.new(ending(self._format, self._options))
        try:
            self._open = (scratch_file, open_file(scratch_file, schema, self._format, self._options, first))
        except BaseException:
            scratch_file.remove()
            raise


def _spill(partitions: Partitions, spill: Spill, group: pa.Table) -> None:
    for folder, rows in partitions.split(group):
        spill.add(folder, rows)


async def _encode(function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """What Arrow refuses it will refuse again."""
    try:
        return await on_cpu(function, *arguments)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError) as problem:
        raise UserMistake(
            f"A value cannot be written: {problem}",
            code="value_not_written",
            hint="Cast the column in the query, or leave such values out.",
        ) from None


def _fixed_width(schema: pa.Schema) -> int | None:
    """Bytes of a row; None where it depends on the values."""
    width = 0
    for type in schema.types:
        try:
            width += max(type.bit_width // 8, 1)
        except ValueError:
            return None
    return width
