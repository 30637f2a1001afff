"""Rows of many partitions in one scratch file, so that a thousand partitions need neither a thousand open files nor a
thousand row groups in memory. Each run of rows is found again by where it stands."""

import pyarrow as pa

from paddock.storage.scratch import Scratch, ScratchFile


class Spill:
    def __init__(self, scratch: Scratch) -> None:
        self._file: ScratchFile = scratch.new(".spill")
        self._runs: dict[str, list[tuple[int, int]]] = {}

    @property
    def bytes(self) -> int:
        return self._file.bytes

    def add(self, folder: str, rows: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(rows)
        run = sink.getvalue()
        self._runs.setdefault(folder, []).append((self._file.bytes, run.size))
        self._file.write(run)

    def flush(self) -> None:
        self._file.flush()

    def folders(self) -> set[str]:
        return set(self._runs)

    def runs(self, folder: str) -> list[tuple[int, int]]:
        return self._runs[folder]

    def read(self, run: tuple[int, int]) -> list[pa.RecordBatch]:
        start, size = run
        with self._file.path.open("rb") as file:
            file.seek(start)
            batches: list[pa.RecordBatch] = pa.ipc.open_stream(pa.py_buffer(file.read(size))).read_all().to_batches()
        return batches

    def remove(self) -> None:
        self._file.remove()
