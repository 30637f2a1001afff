"""One query in SQLite, inside the child.

The database is opened read-only and its read transaction begun; then the child locks itself in, and only then looks
at the text. What it has open stays open; it opens nothing else but its own spill.
"""

import itertools
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pyarrow.compute  # now: a cast would load it when it first runs

from paddock.child_processes.beginning import limit
from paddock.engines.children import sandbox
from paddock.engines.children.sqlite_gate import Proven, authorize, declared_types, prove
from paddock.engines.children.sqlite_types import Kind, array, kind_of
from paddock.engines.children.wire import BATCH_BYTES, DONE, ERROR, MAX_FRAME, VALUE, Failure, FrameWriter

FIRST_ROWS, MOST_ROWS = 64, 16_384
BUSY_MILLISECONDS = 5_000
OWN_SHARE = 0.7


class SqliteSession:
    def __init__(self, request: dict[str, Any], voice: FrameWriter) -> None:
        self.request = request
        self.voice = voice
        self.connection = opened(Path(request["path"]))
        self.lock_in()

    def lock_in(self) -> None:
        request, connection = self.request, self.connection
        spill = Path(request["spill"])
        os.chdir(spill)
        sandbox.forget_environment()
        os.environ["SQLITE_TMPDIR"] = str(spill)  # read when something has to be sorted on the disk
        limit(request["memory"], request["spill_bytes"])
        held = sandbox.confine([], [], [Path(request["path"])], spill)
        if request["needs_landlock"] and not held:
            raise Failure("sandbox_missing", "This kernel has no Landlock, which the engine's settings ask for.")
        apsw.hard_heap_limit(int(request["memory"] * OWN_SHARE))
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, min(MAX_FRAME, request["memory"] // 4))
        connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
        connection.limit(apsw.SQLITE_LIMIT_WORKER_THREADS, 0)
        connection.authorizer = authorize

    def bind(self) -> tuple[Proven, list[str], list[Kind], pa.Schema]:
        proven = prove(self.connection, self.request["sql"])
        given = set(self.request["parameters"])
        if given != proven.parameters:
            raise _parameters(given, proven.parameters)
        declared = declared_types(self.connection, proven)
        kinds = [kind_of(name, type) for name, type in zip(proven.names, declared, strict=True)]
        schema = pa.schema([pa.field(name, kind.arrow) for name, kind in zip(proven.names, kinds, strict=True)])
        return proven, [str(type) for type in declared], kinds, schema

    def stream(self, proven: Proven, natives: Sequence[str], kinds: Sequence[Kind], schema: pa.Schema) -> None:
        limit = self.request.get("limit")
        # The proven text itself: a limit is where we stop reading.
        rows: Iterator[Any] = iter(self.connection.execute(proven.text, self.request["parameters"]))
        if limit is not None:
            rows = itertools.islice(rows, int(limit))
        count = FIRST_ROWS
        while taken := list(itertools.islice(rows, count)):
            columns = zip(schema, natives, kinds, zip(*taken, strict=True), strict=True)
            arrays = [array(*column, self.voice.rows) for column in columns]
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
            self.voice.batch(batch)
            count = _next_count(len(taken), batch.nbytes)
        self.voice.say(DONE, {"rows": self.voice.rows})

    def tables(self) -> list[str]:
        sql = (
            "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        )
        return [str(name) for (name,) in self.connection.execute(f"{sql} ORDER BY 1")]


def opened(path: Path) -> apsw.Connection:
    connection = apsw.Connection(f"{path.as_uri()}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    for _ in connection.execute("PRAGMA query_only = ON; PRAGMA cell_size_check = ON"):
        pass
    # One transaction for the whole export; it begins with the first read, while the files can still be opened.
    connection.execute("BEGIN")
    for _ in connection.execute("SELECT count(*) FROM sqlite_schema"):
        pass
    return connection


def _next_count(rows: int, size: int) -> int:
    """As many as make a batch, but no leap into the dark: the next rows may be larger."""
    fitting = BATCH_BYTES * rows // max(size, 1)
    return max(1, min(fitting, rows * 4, MOST_ROWS))


def _parameters(given: set[str], wanted: frozenset[str]) -> Failure:
    missing, unknown = sorted(wanted - given), sorted(given - wanted)
    said = [f"has no value for :{name}" for name in missing] + [f"does not know :{name}" for name in unknown]
    return Failure("query_refused", f"The query {', '.join(said)}.", refused=True)


def answer(request: dict[str, Any], voice: FrameWriter) -> None:
    session = SqliteSession(request, voice)
    match request["op"]:
        case "describe":
            _, natives, _, schema = session.bind()
            voice.columns(schema, natives)
        case "open":
            proven, natives, kinds, schema = session.bind()
            voice.columns(schema, natives)
            if sys.stdin.readline():  # the parent has written down what runs here
                session.stream(proven, natives, kinds, schema)
        case "tables":
            voice.say(VALUE, session.tables())
        case "version":
            voice.say(VALUE, apsw.sqlite_lib_version())


def failure(problem: Exception) -> Failure:
    match problem:
        case Failure():
            return problem
        case apsw.AuthError():
            return Failure("query_refused", "The query does more than read the tables of its database.", refused=True)
        case apsw.SQLError():
            return Failure("query_refused", _sentence(problem), refused=True)
        case apsw.BusyError() | apsw.LockedError():
            return Failure("database_busy", "The database is locked by a writer.", transient=True)
        case apsw.NoMemError() | MemoryError():
            return Failure(
                "query_out_of_memory",
                "The query needs more memory than the engine allows.",
                hint="Make it smaller, or raise memory_bytes of the engine.",
            )
        case apsw.FullError() | apsw.IOError():
            return Failure(
                "query_spill_full", _sentence(problem), hint="Sort less, or raise spill_bytes of the engine."
            )
        case apsw.TooBigError():
            return Failure("row_too_large", "A value of the result is too large to be exported.")
        case UnicodeDecodeError():
            return Failure(
                "type_mismatch",
                "A text in the result is not valid UTF-8.",
                hint="Cast the column to BLOB.",
                mistake=True,
            )
        case apsw.Error():
            return Failure("query_failed", _sentence(problem))
    traceback.print_exc()
    return Failure("query_crashed", f"The query's process failed with {type(problem).__name__}: {problem}")


def _sentence(problem: Exception) -> str:
    text = str(problem).strip()[:2000]
    return text if text.endswith(".") else f"{text}."


def serve(fd: int) -> int:
    voice = FrameWriter(fd)
    line = sys.stdin.readline()
    if not line:
        return 0
    try:
        answer(json.loads(line), voice)
    except Exception as problem:
        voice.say(ERROR, failure(problem).facts)
    os._exit(0)
