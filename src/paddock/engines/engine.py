"""What an engine offers, and what it says when it cannot.

One way for all of them: `describe` proves that the text is one query and names its columns, `open` starts it and gives
record batches in the query's order. What happened is said by the exceptions of `paddock.jobs.errors`, with a stable
code and a sentence; whether to try again is theirs to say.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from paddock.jobs.errors import TransientResourceError, UserMistake
from paddock.jobs.model import JsonObject

# Told what a person may see of work that comes before the query, as in a job's report. Each takes the place of the last.
Tell = Callable[[JsonObject], None]


def _to_nobody(report: JsonObject) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Query:
    """One query for one job. Everything that differs between two callers travels here, never on a shared client."""

    sql: str
    # Named values the text refers to, each in its engine's own way of naming them.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    role: str | None = None
    owner: str = "system"
    # The job, for the engine's own lists of queries.
    job: str = ""
    catalog: str | None = None
    schema: str | None = None
    tell: Tell = field(default=_to_nobody, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Column:
    """`type` is what the file will hold. `native` is the engine's own word for it."""

    name: str
    type: pa.DataType
    native: str


@dataclass(frozen=True, slots=True)
class Described:
    columns: Sequence[Column]
    # Why the engine cannot write this itself (unload), or None.
    direct_only: str | None = None


@dataclass(slots=True)
class Progress:
    """What the engine knows while it runs; None where it does not."""

    phase: str = "starting"
    percent: float | None = None
    query_id: str | None = None


class Stream(Protocol):
    """A started query. Its names are as the engine gave them, repeated ones included."""

    columns: Sequence[Column]
    progress: Progress

    async def begin(self) -> int:
        """Lets the query run until it has rows, holding next to nothing of them, and keeps it alive from then on: memory
        is reserved after this. Gives how many bytes `batches` may hold of the result beside the batch it gave."""

    def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """In the query's order; the schema of each is that of `columns`. Ends only after the engine said that this
        was all; whatever else happens is an exception."""


# Awaited once with what `cancel` needs, after the engine knows the query and before it may start to run.
Started = Callable[[JsonObject], Awaitable[None]]


class Engine(Protocol):
    name: str
    type: str
    # Whether it wants `Query.role`.
    requires_role: bool

    async def describe(self, query: Query) -> Described:
        """Proves that the text is exactly one query, and asks what it gives. Runs nothing of it."""

    async def preview(self, query: Query, rows: int) -> tuple[Sequence[Column], pa.Table]:
        """The first rows, cheaply."""

    def open(self, query: Query, started: Started | None = None) -> AbstractAsyncContextManager[Stream]:
        """Starts the query; leaving the context early stops it."""

    async def cancel(self, handle: JsonObject) -> None:
        """Stops what `started` was told of; nothing to stop is no error."""

    async def catalogs(self, query: Query) -> Sequence[str]: ...

    async def schemas(self, query: Query, catalog: str) -> Sequence[str]: ...

    async def tables(self, query: Query, catalog: str, schema: str) -> Sequence[str]: ...

    async def table_columns(self, query: Query, catalog: str, schema: str, table: str) -> Sequence[Column]: ...

    def table_query(self, catalog: str | None, schema: str | None, table: str) -> str:
        """`SELECT * FROM` with every name quoted."""

    async def check(self, query: Query) -> Sequence["Finding"]:
        """What works, for `paddock engines check`."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `paddock engines check`."""

    what: str
    ok: bool
    message: str
    hint: str | None = None


class QueryRefused(UserMistake):
    """The text is not one query that this engine will run for the caller: syntax, rights, names, more than one
    statement. `line` and `column` where the engine tells them."""

    code = "query_refused"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.line = line
        self.column = column

    def with_place(self) -> "QueryRefused":
        """Told in words, for who has only those. Trino's tell it already."""
        if self.line is None or f"line {self.line}:{self.column}:" in self.message:
            return self
        told = f"{self.message} Line {self.line}, column {self.column}."
        return QueryRefused(told, code=self.code, hint=self.hint, line=self.line, column=self.column)


class NoAnswer(TransientResourceError):
    """A transport time-out before the first row. A direct export starts anew, twice; `error_type` names what was seen."""

    code = "engine_no_answer"

    def __init__(self, message: str, *, error_type: str) -> None:
        super().__init__(message, budget="cluster")
        self.error_type = error_type
