"""DuckDB as dumps use it: one thread, no files but the one named, nothing that anybody could change later.

Every connection is an instance of its own with the file attached: two connections to a path would share one, and its
settings. One thread makes the order of rows the order of their ids.
"""

import re
from pathlib import Path
from typing import Any

import duckdb
import structlog

from paddock.engines.children.quoting import literal, quoted
from paddock.engines.duckdb_closed import CLOSED
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError

# What DuckDB may hold while it renders; a value that needs more gets more.
MEMORY = 24 << 20
MEMORY_MOST = 64 << 30

# Of a path that DuckDB names: all before its last part.
_FOLDERS = re.compile(r"(?<![\w./-])/[^\s\"']*/")

log = structlog.get_logger(__name__)

_SETTINGS: dict[str, Any] = {
    "threads": 1,
    "preserve_insertion_order": True,
    **CLOSED,
    # Its allocator would keep what was freed, up to many times the memory that it is given.
    "allocator_flush_threshold": "1MB",
    "allocator_bulk_deallocation_flush_threshold": "1MB",
}


def scratch() -> duckdb.DuckDBPyConnection:
    """A database in memory, not locked yet."""
    connection = duckdb.connect(":memory:", config=_SETTINGS)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def attached(file: Path, name: str, memory: int = MEMORY, *, read_only: bool = True) -> duckdb.DuckDBPyConnection:
    """`name` is what the database calls itself: its views may do so too."""
    connection = scratch()
    try:
        attach(connection, file, name, read_only=read_only)
        connection.execute(f"USE {quoted(name)}")
        connection.execute(f"SET memory_limit = '{memory // 1000}kB'")
        lock(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def attach(connection: duckdb.DuckDBPyConnection, file: Path, name: str, *, read_only: bool = True) -> None:
    mode = "READ_ONLY" if read_only else "READ_WRITE"
    connection.execute(f"ATTACH {literal(str(file))} AS {quoted(name)} (TYPE duckdb, {mode})")


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("SET temp_directory = ''")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def name_of(file: Path) -> str:
    """As DuckDB names a database that it opens by its path; never one of the names that it has itself."""
    name = file.name.split(".", 1)[0]
    return name if name and name.lower() not in {"memory", "main", "system", "temp"} else "dumped"


def explained(problem: duckdb.Error, file: Path, copy: Path | None = None) -> InfrastructureError:
    """What DuckDB says when it cannot open a file, or a copy of it, as what to do about it. Whoever may see a dump sees
    these: the file's name, not where it lies, nor how its copy is called; that is for the log."""
    log.warning("duckdb_cannot_open", path=str(file), error=str(problem).split("\n", 1)[0])
    said = _error_text(problem, file, copy)
    if "Could not set lock" in said:
        pid = re.search(r"PID (\d+)", said)
        return locked(file, int(pid[1]) if pid else None)
    if "not a valid DuckDB database file" in said:
        return PermanentRunnerError(f"{file.name} is not a DuckDB database.", code="not_a_database")
    if "database does not exist" in said:
        return missing(file)
    if re.search(r"version number|newer version|storage version|older version", said):
        return PermanentRunnerError(
            f"{file.name} was written by another version of DuckDB: {said}",
            code="database_version",
            hint=f"This is DuckDB {duckdb.__version__}. Write the file with a storage_version that it reads, or upgrade.",
        )
    if "ncrypt" in said:
        return PermanentRunnerError(
            f"{file.name} is encrypted, and dumps have no key for it.", code="database_encrypted"
        )
    if "Permission denied" in said:
        return PermanentRunnerError(f"{file.name} may not be read by this worker.", code="database_unreadable")
    return PermanentRunnerError(f"DuckDB cannot open {file.name}: {said}", code="database_unreadable")


def unreadable(problem: duckdb.Error, file: Path, copy: Path, table: str) -> InfrastructureError:
    """What DuckDB says while it reads a table: the same again, unless the disk or the memory is to blame."""
    log.warning("duckdb_cannot_read", path=str(file), table=table, error=str(problem).split("\n", 1)[0])
    sentence = f"DuckDB cannot read table '{table}' of {file.name}: {_error_text(problem, file, copy)}"
    if isinstance(problem, duckdb.IOException | duckdb.OutOfMemoryException):
        return TransientResourceError(sentence, code="database_unreadable")
    return PermanentRunnerError(
        sentence, code="database_unreadable", hint="Leave the table out with exclude_tables to dump the others."
    )


def _error_text(problem: duckdb.Error, file: Path, copy: Path | None) -> str:
    said = str(problem).split("\n", 1)[0]
    if copy is not None:
        said = said.replace(str(copy), file.name)
    return _FOLDERS.sub("", said.replace(f"{file.parent}/", ""))


def locked(file: Path, pid: int | None) -> TransientResourceError:
    by = "another process" if pid is None else f"process {pid}"
    return TransientResourceError(
        f"{file.name} is open for writing in {by}, and DuckDB lets nobody else read it then.",
        code="source_locked",
        hint="The dump waits until that process closes the database.",
    )


def missing(file: Path) -> PermanentRunnerError:
    return PermanentRunnerError(
        f"There is no database {file.name}.",
        code="database_missing",
        hint="Correct the path in paddock.toml, or run the dump on a worker that has the file.",
    )
