"""One query in DuckDB, inside the child.

The connection is there before the request is; then the child locks itself in, and only then looks at the text.

`_duckdb` is DuckDB without its Python modules, which the child does not use and which take as long to load as DuckDB.
Nor does a child's module define dataclasses: what they load is a tenth of its start.
"""

import itertools
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import _duckdb as duckdb
import pyarrow as pa

from paddock.child_processes.beginning import limit
from paddock.engines.children import sandbox
from paddock.engines.children.duckdb_errors import OUT_OF_MEMORY, explained, position_of, uncast
from paddock.engines.children.duckdb_gate import prove, without_end
from paddock.engines.children.duckdb_paths import NEEDS, WHOLE, remote_paths
from paddock.engines.children.duckdb_types import Target, refused, target
from paddock.engines.children.quoting import literal, quoted
from paddock.engines.children.wire import DONE, ERROR, PROGRESS, VALUE, WANTED, Failure, FrameWriter
from paddock.engines.duckdb_closed import CLOSED

# A multiple of DuckDB's vectors of 2,048.
BATCH_ROWS = 32 * 2048
# Of what the system allows; the rest is for what DuckDB does not count: strings in the making, Arrow, the allocator.
OWN_SHARE = 0.7
PROGRESS_SECONDS = 0.5

BEFORE: dict[str, Any] = {
    "threads": 1,
    "errors_as_json": True,
    **CLOSED,
    "arrow_lossless_conversion": False,
    "arrow_large_buffer_size": False,
}


class DuckdbSession:
    def __init__(self, connection: duckdb.DuckDBPyConnection, request: dict[str, Any], voice: FrameWriter) -> None:
        self.connection = connection
        self.request = request
        self.voice = voice
        # How many bytes of ours stand before the text in what runs now; None: none of the text runs.
        self.before: int | None = None
        # Where our cast of each column ends in what runs now, with the column's name and its own type.
        self.casts: list[tuple[int, str, str]] = []

    def lock_in(self) -> None:
        request = self.request
        roots = [Path(root) for root in request["roots"]]
        fetched = [Path(request["fetched"])] if request["remotes"] else []
        files = [*self._attach(), *fetched]
        spill = Path(request["spill"])
        # What was fetched has the names that the text gives it, in `filename` and in errors; its folder has another each time.
        os.chdir([*fetched, *roots, spill][0])
        sandbox.forget_environment()
        limit(request["memory"], request["spill_bytes"])
        held = sandbox.confine(roots, [Path(path) for path in request["hidden"]], files, spill)
        if request["needs_landlock"] and not held:
            raise Failure("sandbox_missing", "This kernel has no Landlock, which the engine's settings ask for.")
        self._configure([*roots, *fetched], spill)

    def _attach(self) -> list[Path]:
        database = self.request["database"]
        if database is None:
            return []
        # Not ahead of time: while somebody has the file open to read, nobody can open it to write.
        name = quoted(Path(database).stem)
        try:
            self.connection.execute(f"ATTACH {literal(database)} AS {name} (READ_ONLY)")
        except duckdb.IOException as problem:
            if "lock" in str(problem):
                raise Failure("database_busy", "The database is open for writing elsewhere.", transient=True) from None
            raise
        self.connection.execute(f"USE {name}")
        return [Path(database), Path(f"{database}.wal")]

    def _configure(self, roots: Sequence[Path], spill: Path) -> None:
        request = self.request
        spills = request["spill_bytes"] > 0
        for name, value in {
            "TimeZone": "UTC",
            "memory_limit": f"{int(request['memory'] * OWN_SHARE)}B",
            "temp_directory": str(spill) if spills else "",
            "secret_directory": str(spill),
            "home_directory": str(spill),
            "extension_directory": str(spill),
            **({"max_temp_directory_size": f"{request['spill_bytes']}B"} if spills else {}),
            "allowed_directories": [str(root) for root in roots],
            # Where a relative path may start: where it does without remote sources, or here, among what was fetched.
            **({"file_search_path": f"{request['roots'][0]},."} if request["remotes"] and request["roots"] else {}),
            "threads": request["threads"],
            # Without a bar it does not count how far it is.
            "enable_progress_bar": True,
            "enable_progress_bar_print": False,
        }.items():
            self.connection.execute(f"SET {name} = {literal(value)}")
        self.connection.execute("SET enable_external_access = false")
        self.connection.execute("SET lock_configuration = true")

    def bind(self) -> tuple[pa.Schema, list[str], list[Target]]:
        """Names and types of the result. DESCRIBE binds the query and runs nothing of it."""
        rows = self._described()
        names, natives = [row[0] for row in rows], [row[1] for row in rows]
        targets = [target(name, self._type(name, native)) for name, native in zip(names, natives, strict=True)]
        schema = pa.schema([pa.field(name, into.arrow) for name, into in zip(names, targets, strict=True)])
        return schema, natives, targets

    def _described(self) -> list[Any]:
        request = self.request
        self.before = 0
        tree = prove(self.connection, request["sql"])
        wanted: dict[str, str] = {}
        if request["remotes"]:
            describe = request["op"] == "describe"
            wanted = remote_paths(tree, request["parameters"], request["remotes"], describe=describe)
        self._fetch(wanted)
        try:
            return self._describe()
        except duckdb.Error as problem:
            # It looked into a file that has only its name or its footer here: a wrong answer it cannot give.
            if set(wanted.values()) <= {WHOLE} or explained(problem, request["sql"], self.before).facts["refused"]:
                raise
        self._fetch(dict.fromkeys(wanted, WHOLE))
        return self._describe()

    def _describe(self) -> list[Any]:
        self.before = len("DESCRIBE\n")
        return self.connection.execute(f"DESCRIBE\n{self.request['sql']}", self._parameters()).fetchall()

    def _fetch(self, wanted: dict[str, str]) -> None:
        """Has the parent bring what the text names of remote sources."""
        if wanted:
            self.voice.say(WANTED, {need: sorted(path for path in wanted if wanted[path] == need) for need in NEEDS})
            if not sys.stdin.readline():
                os._exit(0)  # nobody waits any more

    def _type(self, name: str, native: str) -> Any:
        try:
            return self.connection.type(native)
        except duckdb.Error:
            raise refused(name, native, "name the fields of its structs, or cast it to VARCHAR") from None

    def _parameters(self) -> dict[str, Any] | None:
        return self.request["parameters"] or None

    def statement(self, schema: pa.Schema, natives: Sequence[str], targets: Sequence[Target]) -> str:
        """The text itself, unless DuckDB has to cast or to stop early for us."""
        sql, limit = str(self.request["sql"]), self.request.get("limit")
        if limit is None and not any(into.changed for into in targets):
            self.before = 0
            return sql
        names = [f"c{index}" for index in range(len(targets))]
        columns = [
            f"CAST({name} AS {into.sql}) AS {name}" if into.changed else name
            for name, into in zip(names, targets, strict=True)
        ]
        ahead = f"SELECT {', '.join(columns)} FROM (\n"  # noqa: S608  types and names of ours around a proven query
        wrapped = f"{ahead}{without_end(sql)}\n) AS q({', '.join(names)})"
        if limit is not None:
            wrapped += f" LIMIT {int(limit)}"
        self.before = len(ahead.encode())
        ends = itertools.accumulate(len(f"{column}, ".encode()) for column in columns)
        self.casts = list(zip((len("SELECT ") + end for end in ends), schema.names, natives, strict=True))
        prove(self.connection, wrapped)
        return wrapped

    def cast_of(self, position: int | None) -> tuple[str, str] | None:
        """The column whose cast of ours stands there."""
        if position is None or self.before is None or position >= self.before:
            return None
        return next(((name, native) for end, name, native in self.casts if position < end), None)

    def stream(self, schema: pa.Schema, natives: Sequence[str], targets: Sequence[Target]) -> None:
        statement = self.statement(schema, natives, targets)
        threading.Thread(target=self._tell_progress, daemon=True).start()
        result = self.connection.execute(statement, self._parameters())
        reader = result.to_arrow_reader(BATCH_ROWS)
        if [_layout(kind) for kind in reader.schema.types] != [_layout(kind) for kind in schema.types]:
            raise Failure("query_crashed", f"DuckDB gives {reader.schema.types} where {schema.types} was declared.")
        for batch in reader:
            self.voice.batch(batch)
        self.voice.say(DONE, {"rows": self.voice.rows})

    def _tell_progress(self) -> None:
        """Also while nothing comes: a sort reads everything before its first row."""
        with suppress(OSError):
            while True:
                time.sleep(PROGRESS_SECONDS)
                percent = self.connection.query_progress()
                # -1: nothing runs. 0: it cannot tell, a function that makes rows for example.
                if percent > 0:
                    self.voice.say(PROGRESS, percent)

    def rows(self, sql: str, *parameters: object) -> list[list[Any]]:
        return [list(row) for row in self.connection.execute(sql, list(parameters)).fetchall()]


def _layout(kind: pa.DataType) -> str:
    """The type without the names that lists give their items: what is sent does not carry them."""
    if pa.types.is_map(kind):
        return f"map({_layout(kind.key_type)},{_layout(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"list({_layout(kind.value_type)})"
    if pa.types.is_struct(kind):
        return f"struct({','.join(f'{field.name} {_layout(field.type)}' for field in kind)})"
    return str(kind)


def answer(session: DuckdbSession) -> None:
    request, voice = session.request, session.voice
    session.lock_in()
    match request["op"]:
        case "describe":
            schema, natives, _ = session.bind()
            voice.columns(schema, natives)
        case "open":
            schema, natives, targets = session.bind()
            voice.columns(schema, natives)
            if sys.stdin.readline():  # the parent has written down what runs here
                session.stream(schema, natives, targets)
        case "rows":
            voice.say(VALUE, session.rows(request["sql"], *request["parameters"]))


def failure(problem: Exception, session: DuckdbSession) -> Failure:
    match problem:
        case Failure():
            return problem
        case MemoryError():
            return Failure(OUT_OF_MEMORY.code, "The query ran out of memory.", hint=OUT_OF_MEMORY.hint)
        case duckdb.Error():
            return failure_from_duckdb(problem, session)
        # After the first rows Arrow's reader gives DuckDB's errors as its own.
        case OSError() if str(problem).startswith('{"exception_type":'):
            return failure_from_duckdb(problem, session)
    traceback.print_exc()
    return Failure("query_crashed", f"The query's process failed with {type(problem).__name__}: {problem}")


def failure_from_duckdb(problem: Exception, session: DuckdbSession) -> Failure:
    cast = session.cast_of(position_of(problem))
    return explained(problem, session.request["sql"], session.before) if cast is None else uncast(problem, *cast)


def serve(fd: int) -> int:
    voice = FrameWriter(fd)
    connection = duckdb.connect(":memory:", config=BEFORE)
    # What DuckDB and Arrow load when they are first used would not be readable later.
    connection.execute("SELECT 1").to_arrow_reader(1).read_all()
    line = sys.stdin.readline()
    if not line:
        return 0
    request = json.loads(line)
    session = DuckdbSession(connection, request, voice)
    try:
        answer(session)
    except Exception as problem:
        voice.say(ERROR, failure(problem, session).facts)
    # Without tearing anything down: nothing of it is needed any more.
    os._exit(0)
