"""What SQLite's errors mean for a dump: one table."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from paddock.dumps.sqlite.big import TooLarge
from paddock.dumps.sqlite.chunks import RowsDiffer
from paddock.dumps.sqlite.schema import Unreadable
from paddock.dumps.sqlite.script import UnknownTable
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError

_Verdict = tuple[type[InfrastructureError], str, str, str]

VERDICTS: dict[type[apsw.Error], _Verdict] = {
    apsw.BusyError: (
        TransientResourceError,
        "source_locked",
        "is locked by another process",
        "It is tried again. A writer that holds it for itself (locking_mode=EXCLUSIVE) must let go.",
    ),
    apsw.NotADBError: (
        PermanentRunnerError,
        "not_a_database",
        "is not a SQLite database, or it is encrypted",
        "Check `path`; an encrypted database cannot be dumped.",
    ),
    apsw.CorruptError: (
        PermanentRunnerError,
        "damaged_database",
        "is damaged",
        "Run PRAGMA integrity_check on it; the sqlite3 command's .recover may save what is left.",
    ),
    apsw.CantOpenError: (
        PermanentRunnerError,
        "source_unreadable",
        "cannot be opened",
        "The worker must be able to read the file, and to write beside it: readers of a write-ahead log share a file.",
    ),
    apsw.PermissionsError: (
        PermanentRunnerError,
        "source_unreadable",
        "may not be read",
        "Let the worker's user read the file.",
    ),
    apsw.ReadOnlyError: (
        PermanentRunnerError,
        "needs_recovery",
        "was left unfinished by a writer, and only a writer can recover it",
        "Open it once with its application or the sqlite3 command, then retry.",
    ),
    apsw.FullError: (
        TransientResourceError,
        "disk_full",
        "cannot be copied: the disk is full",
        "Free space where its copies are made, or set `work_dir`.",
    ),
    apsw.IOError: (
        TransientResourceError,
        "io_error",
        "cannot be read or copied: the disk reports an error",
        "See the system's log.",
    ),
    apsw.TooBigError: (
        PermanentRunnerError,
        "value_too_large",
        "has a value that is larger than SQLite can read",
        "Dump it in the format sqlite, which is the copy itself.",
    ),
}


@contextmanager
def translated(path: Path, table: str | None = None) -> Iterator[None]:
    """Whoever may see a dump sees these: the name of the database's file, not where it lies, nor that of a copy."""
    try:
        yield
    except apsw.Error as error:
        raise _meaning(error, path, table) from error
    except FileNotFoundError as error:
        raise PermanentRunnerError(
            f"There is no database {path.name}.", code="source_missing", hint="Check `path` in the configuration."
        ) from error
    except PermissionError as error:
        raise PermanentRunnerError(
            f"The database {path.name} may not be read: {error.strerror}.",
            code="source_unreadable",
            hint="Let the worker's user read the file and write where copies are made.",
        ) from error
    except UnknownTable as unknown:
        raise PermanentRunnerError(f"Table '{unknown.table}' does not exist.", code="unknown_table") from None
    except Unreadable as unreadable:
        raise PermanentRunnerError(str(unreadable), code="damaged_schema") from None
    except RowsDiffer as differ:
        raise PermanentRunnerError(
            f"Table '{differ.table}' of {path.name} has {differ.counted:,} rows, and {differ.written:,} were read: it is"
            " not stored in the order of its key.",
            code="rows_differ",
            hint="Run PRAGMA integrity_check on the database. The format sqlite, which is the copy itself, can be dumped.",
        ) from None
    except TooLarge as large:
        raise PermanentRunnerError(
            f"Column '{large.column}' of table '{large.table}' holds a value that no loader takes as SQL, in the row"
            f" {large.row}.",
            code="value_too_large",
            hint="Dump it in the format sqlite, or leave the table out.",
        ) from None


def _meaning(error: apsw.Error, path: Path, table: str | None) -> InfrastructureError:
    where = "" if table is None else f" (table '{table}')"
    for kind, (verdict, code, what, hint) in VERDICTS.items():
        if isinstance(error, kind):
            return verdict(f"The database {path.name} {what}{where}.", code=code, hint=hint)
    message = f"SQLite cannot read the database {path.name}{where}: {error}."
    return PermanentRunnerError(message, code="source_unreadable")
