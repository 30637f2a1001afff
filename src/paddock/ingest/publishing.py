"""PublishBatch: what passed all hooks becomes `records.parquet`, what did not `rejected.parquet`.

Killed on any line, this leaves a draft that no row names; the file is published by the transaction that ends the job.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paddock.declared_arrow import arrow_of
from paddock.ingest import records
from paddock.ingest.column_values import Misfit, column_values
from paddock.ingest.columns import column_type
from paddock.ingest.launching import step_folder
from paddock.ingest.model import BatchPayload, Published, prefix_of_step
from paddock.ingest.records import LeftOut, LocalCopy, StoredRecord, each, read_left_out, read_records
from paddock.ingest.resources import IngestResources
from paddock.ingest.stepping import columns_sha256
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.storage.drafts import Draft, new_draft_id, read_manifest
from paddock.storage.scratch import Scratch, ScratchFile

AT_ONCE = 10_000
SAMPLED, SAMPLE_BYTES = 100, 1 << 20
COMMON = [("stream", pa.string()), ("id", pa.string()), ("data", pa.string())]
PLACE = [("run_id", pa.string()), ("batch", pa.int32()), ("position", pa.int32())]
WHY = [("hook", pa.string()), ("outcome", pa.string()), ("reason", pa.string())]
REJECTED_SCHEMA = pa.schema([*COMMON, *PLACE, *WHY])
MISMATCH = "column_mismatch"


async def run(turn: Turn[BatchPayload], resources: IngestResources) -> Outcome:
    payload = turn.payload
    source = resources.source(payload.source)
    draft_id = new_draft_id()
    await turn.save({"draft": draft_id}, progress=False)
    turn.report(phase="publishing")
    manifest = await read_manifest(resources.store, payload.manifest, payload.sha256)
    draft = Draft(resources.store, prefix_of_step(payload.source, payload.run_id, payload.batch, "publish"), draft_id)
    with step_folder(resources.scratch, f"publish-{draft_id}") as folder:
        copy = await records.fetch(resources.store, manifest, folder)
        writing = Writing(resources.scratch, payload, source.columns)
        try:
            await asyncio.to_thread(writing.write, copy)
            await draft.add(writing.records, "records.parquet")
            if writing.rejected.rows:
                await draft.add(writing.rejected, "rejected.parquet")
                await draft.add(writing.sample, "rejected-sample.jsonl")
        finally:
            writing.remove()
    sealed = await draft.seal(
        {"step": "publish", "definition": columns_sha256(source.columns), "before": manifest.facts}
    )
    rows, rejected = writing.records.rows, writing.rejected.rows
    return done(
        Published(
            manifest=sealed.manifest, sha256=sealed.sha256, rows=rows, rejected=rejected, bytes=sealed.bytes
        ).model_dump(mode="json")
    )


class Writing:
    """Both files of one batch, on a thread. Every batch has the first; its columns are the same for ever."""

    def __init__(self, scratch: Scratch, payload: BatchPayload, columns: Mapping[str, str]) -> None:
        self.records, self.rejected = scratch.new(".parquet"), scratch.new(".parquet")
        # The first rejected records as lines, for people who look at them: the control plane reads no Parquet.
        self.sample = scratch.new(".jsonl")
        self._payload = payload
        self._columns = {name: column_type(name, text) for name, text in columns.items()}
        declared = [(name, arrow_of(type)) for name, type in self._columns.items()]
        fixed = [*COMMON, ("features", pa.string()), *PLACE, ("fetched_at", pa.timestamp("us", "UTC"))]
        self._schema = pa.schema([*fixed, *declared])

    def write(self, copy: LocalCopy) -> None:
        left_out: list[LeftOut] = []
        with _writer(self.records, self._schema) as writer:
            for some in _pages(each(copy.records, read_records)):
                fitting, values = self._fitting(some, left_out)
                writer.write_table(self._table(fitting, values))
                self.records.rows += len(fitting)
        self.records.close()
        with _writer(self.rejected, REJECTED_SCHEMA) as writer:
            earlier = [] if copy.rejected is None else each(copy.rejected, read_left_out)
            for rejections in _pages(earlier):
                self._write_rejected(writer, rejections)
            self._write_rejected(writer, left_out)
        self.rejected.close()
        self.sample.close()

    def remove(self) -> None:
        for file in (self.records, self.rejected, self.sample):
            file.remove()

    def _fitting(self, some: list[StoredRecord], left_out: list[LeftOut]) -> tuple[list[StoredRecord], list[list[Any]]]:
        """Those that have what the source declares, and that of each."""
        if not self._columns:
            return some, []
        found = [(record, values) for record in some if (values := self._values(record, left_out)) is not None]
        return [record for record, _ in found], [values for _, values in found]

    def _values(self, record: StoredRecord, left_out: list[LeftOut]) -> list[Any] | None:
        """Of the declared columns; None: one does not fit, and the record is left out."""
        try:
            return column_values(bytes(record.data), self._columns)
        except Misfit as problem:
            reason = f"{MISMATCH}: {problem}"
            left_out.append(LeftOut(record.position, record.stream, record.id, record.data, "", "rejected", reason))
            return None

    def _table(self, records_: Sequence[StoredRecord], values: Sequence[list[Any]]) -> pa.Table:
        """`values` are those of the declared columns, of each record."""
        n = len(records_)
        same = (self._payload.run_id, self._payload.batch, self._payload.fetched_at)
        run_id, batch, fetched_at = (
            pa.repeat(pa.scalar(value, self._schema.field(name).type), n)
            for name, value in zip(("run_id", "batch", "fetched_at"), same, strict=True)
        )
        columns: list[Any] = [
            [record.stream for record in records_],
            [record.id for record in records_],
            [bytes(record.data).decode() for record in records_],
            [records.ENCODER.encode(record.features).decode() if record.features else "{}" for record in records_],
            run_id,
            batch,
            [record.position for record in records_],
            fetched_at,
            *([own[index] for own in values] for index in range(len(self._columns))),
        ]
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        return pa.table(arrays, self._schema)

    def _write_rejected(self, writer: pq.ParquetWriter, some: Sequence[LeftOut]) -> None:
        if not some:
            return
        n = len(some)
        for one in some[:SAMPLED]:
            if self.sample.bytes < SAMPLE_BYTES:
                self.sample.write(records.ENCODER.encode(one) + b"\n")
        columns: list[Any] = [
            [one.stream for one in some],
            [one.id for one in some],
            [bytes(one.data).decode() for one in some],
            [self._payload.run_id] * n,
            [self._payload.batch] * n,
            [one.position for one in some],
            [one.hook for one in some],
            [one.outcome for one in some],
            [one.reason for one in some],
        ]
        writer.write_table(pa.table(columns, REJECTED_SCHEMA))
        self.rejected.rows += n


def _pages(items: Any) -> Iterator[list[Any]]:
    page: list[Any] = []
    for item in items:
        page.append(item)
        if len(page) == AT_ONCE:
            yield page
            page = []
    if page:
        yield page


def _writer(file: ScratchFile, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(pa.PythonFile(file, "w"), schema, compression="zstd")
