"""What DuckDB and SQLite have in common as engines: a child for each query."""

import json
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from paddock.engines.children import landlock
from paddock.engines.children.fetching import Fetched, Wanted
from paddock.engines.children.process import Child, Children
from paddock.engines.children.wire import BATCH, COLUMNS, DONE, PROGRESS, WANTED, unpack_columns
from paddock.engines.engine import Column, Described, Finding, Progress, Query, QueryRefused, Started, Stream, Tell
from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.model import JsonObject

Look = Callable[[pa.RecordBatch], None]


class LocalStream:
    def __init__(self, child: Child, schema: pa.Schema, columns: Sequence[Column], look_at: Look) -> None:
        self._child = child
        self._look_at = look_at
        self._schema = schema
        self.columns = columns
        self.progress = Progress(phase="running", query_id=f"pid {child.pid}")

    async def begin(self) -> int:
        """The child runs already; it waits with its first batch."""
        return 0

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        rows = 0
        while True:
            kind, body = await self._child.hear()
            if kind == DONE:
                break
            if kind == PROGRESS:
                self.progress.percent = json.loads(bytes(body))
                continue
            if kind != BATCH:
                raise out_of_step(kind)
            batch = pa.ipc.read_record_batch(body, self._schema)
            rows += batch.num_rows
            self._look_at(batch)
            yield batch
        said = json.loads(bytes(body))["rows"]
        if said != rows:
            raise PermanentRunnerError(f"The query gave {said} rows, {rows} arrived.", code="query_crashed")
        self.progress.phase = "finished"


class LocalEngine:
    requires_role = False

    def __init__(self, name: str, type: str, module: str, spill: Path | None) -> None:
        self.name = name
        self.type = type
        self._children = Children(["-P", "-m", module], spill)

    def request(self) -> JsonObject:
        """What the child has to know of the engine's settings."""
        raise NotImplementedError

    def look_at(self, batch: pa.RecordBatch) -> None:
        """Raises for a value that no file can hold."""

    @asynccontextmanager
    async def fetching(self, parent: Path) -> AsyncIterator[Fetched | None]:
        """What brings the files of other machines that a query names; None: this engine knows none."""
        yield None

    async def describe(self, query: Query) -> Described:
        async with self._start_query("describe", query) as asked:
            _schema, columns = await asked.columns()
        return Described(columns)

    async def preview(self, query: Query, rows: int) -> tuple[Sequence[Column], pa.Table]:
        async with self._opened(query, None, limit=rows) as stream:
            batches = [batch async for batch in stream.batches()]
            return stream.columns, pa.Table.from_batches(batches, schema=stream._schema)

    @asynccontextmanager
    async def open(self, query: Query, started: Started | None = None) -> AsyncIterator[Stream]:
        async with self._opened(query, started) as stream:
            yield stream

    @asynccontextmanager
    async def _opened(
        self, query: Query, started: Started | None, limit: int | None = None
    ) -> AsyncIterator[LocalStream]:
        async with self._start_query("open", query, limit=limit) as asked:
            schema, columns = await asked.columns()
            if started is not None:
                await started({"child": asked.name})
            await asked.child.tell({"go": True})
            yield LocalStream(asked.child, schema, columns, self.look_at)

    async def cancel(self, handle: JsonObject) -> None:
        """A child of another process died with it, or with its own job."""
        self._children.kill(str(handle.get("child", "")))

    async def close(self) -> None:
        await self._children.close()

    async def ask(self, op: str, sql: str = "", *parameters: object) -> Any:
        """Of the engine's own catalog; the text, if any, is ours."""
        async with self._start_query(op, Query(sql), parameters=list(parameters)) as asked:
            _kind, body = await asked.child.hear()
        return json.loads(bytes(body))

    @asynccontextmanager
    async def _start_query(self, op: str, query: Query, **more: Any) -> AsyncIterator["RunningQuery"]:
        async with self._children.one() as (child, spill), self.fetching(spill.parent) as fetched:
            request = {
                **self.request(),
                "op": op,
                "sql": query.sql,
                "parameters": checked(query.parameters),
                "spill": str(spill),
                "fetched": None if fetched is None else str(fetched.path),
                **more,
            }
            await child.tell(request)
            yield RunningQuery(child, spill.name, fetched, query.tell)


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A child that was told what to do."""

    child: Child
    name: str
    fetched: Fetched | None
    tell: Tell

    async def columns(self) -> tuple[pa.Schema, list[Column]]:
        kind, body = await self.child.hear()
        while kind == WANTED and self.fetched is not None:
            await self.fetched.bring(Wanted(**json.loads(bytes(body))), self.tell)
            await self.child.tell({"fetched": True})
            kind, body = await self.child.hear()
        if kind != COLUMNS:
            raise out_of_step(kind)
        schema, natives = unpack_columns(body)
        return schema, [Column(field.name, field.type, native) for field, native in zip(schema, natives, strict=True)]


def checked(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON carries them; the query casts what JSON has no form for."""
    for name, value in parameters.items():
        if not isinstance(value, str | int | float | bool | None) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            raise QueryRefused(
                f"The parameter '{name}' is neither text nor a number, true, false or null.",
                code="parameter_refused",
                hint="Give it as text and cast it in the query, for example CAST($day AS DATE).",
            )
    return dict(parameters)


def sandbox_finding() -> Finding:
    version = landlock.version()
    if version:
        return Finding("sandbox", True, f"Landlock {version}: the kernel keeps a query's process to what it may read")
    return Finding(
        "sandbox",
        False,
        "This kernel has no Landlock: only the engine's own settings keep a query inside",
        "Use Linux 5.13 or later with Landlock on, or give the worker a user that can read nothing else.",
    )


def out_of_step(kind: bytes) -> PermanentRunnerError:
    return PermanentRunnerError(f"The query's process sent {kind!r} out of turn.", code="query_crashed")
