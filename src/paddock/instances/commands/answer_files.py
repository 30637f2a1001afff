"""The rows of a query into a file: under another name first, then by one rename to where they belong."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

from paddock.cli import replacing
from paddock.cli.endings import QUERIES, Ending
from paddock.cli.errors import CommandFailed, wrong_usage

if TYPE_CHECKING:
    from paddock.client import GraphConnection
    from paddock.client.results import CsvAnswer

MOST_CSV_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Target:
    path: Path
    ending: Ending
    force: bool


@dataclass(frozen=True, slots=True)
class Written:
    """`truncated`: there are more rows."""

    rows: int
    bytes: int
    truncated: bool


def target_of(to: str, *, force: bool) -> Target:
    """Before anything is asked of the server: a place that cannot be written to is said now."""
    path = Path(to).expanduser()
    ending = QUERIES.of(path)
    if ending is None:
        raise wrong_usage(f"{path.name} does not say which format it is to have.", str(QUERIES))
    replacing.check_file(path, force=force)
    return Target(path, ending, force)


def write_answer(graph: "GraphConnection", asked: Mapping[str, Any], target: Target) -> Written:
    """All of it is there, or none of it: a file with this name is whole."""
    partial = target.path.with_name(f"{target.path.name}.partial-{uuid4()}")
    try:
        with _compressed(partial, target.ending.compression) as sink:
            rows, truncated = _write(graph, asked, target.ending.format, sink)
        size = partial.stat().st_size
        # Once more: a query may take minutes, and somebody may have put a file there meanwhile.
        replacing.check_file(target.path, force=target.force)
        partial.replace(target.path)
    except OSError as problem:
        raise CommandFailed(f"{target.path} cannot be written: {problem.strerror or problem}.") from None
    finally:
        partial.unlink(missing_ok=True)
    return Written(rows, size, truncated)


@contextlib.contextmanager
def _compressed(path: Path, compression: str | None) -> Iterator[BinaryIO]:
    import pyarrow as pa

    with pa.output_stream(str(path), compression=compression) as sink:
        yield sink


def _write(graph: "GraphConnection", asked: Mapping[str, Any], format: str, sink: BinaryIO) -> tuple[int, bool]:
    if format in ("parquet", "arrow"):
        return _write_batches(graph, asked, format, sink)
    if format == "json":
        found = graph.query(**asked)
        sink.write(json.dumps(dataclasses.asdict(found), indent=2, ensure_ascii=False).encode())
        return found.row_count, found.truncated
    counter = RowCounter()
    with graph.csv(**asked) as pieces:
        for piece in pieces:
            counter.count(piece)
            sink.write(piece)
        return counter.rows, is_cut(pieces, counter, asked)


def is_cut(answer: "CsvAnswer", counter: "RowCounter", asked: Mapping[str, Any]) -> bool:
    """Where the server does not say it, whoever got as many rows as they may have must think so."""
    if answer.truncated is None:
        return counter.rows >= (asked["max_rows"] or MOST_CSV_ROWS)
    return answer.truncated


class RowCounter:
    """Rows of a CSV that passes by."""

    def __init__(self) -> None:
        self.rows = -1  # the first line has the names
        self._in_quotes = False

    def count(self, piece: bytes) -> None:
        """A line ends where no quotes are open; quotes within quotes are doubled, so they open and close in vain."""
        for part in piece.split(b'"'):
            if not self._in_quotes:
                self.rows += part.count(b"\n")
            self._in_quotes = not self._in_quotes
        self._in_quotes = not self._in_quotes


def _write_batches(graph: "GraphConnection", asked: Mapping[str, Any], format: str, sink: BinaryIO) -> tuple[int, bool]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 0
    with graph.batches(**asked) as answer:
        try:
            opened = pq.ParquetWriter(sink, answer.schema, compression="zstd") if format == "parquet" else None
            with opened or pa.ipc.new_file(sink, answer.schema) as writer:
                for batch in answer:
                    rows += batch.num_rows
                    if batch.num_rows:
                        writer.write_batch(batch)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as problem:
            raise CommandFailed(
                f"{format.capitalize()} cannot hold this answer: {problem}.", hint="Return plain values, or use .json."
            ) from None
        return rows, answer.truncated
