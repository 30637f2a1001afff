"""Catalogs and tables, opened; and what their failures mean, told once for all callers.

Facts and policy stand apart: PyIceberg and its drivers say what happened by the type of what they raise, and one table says
what that means for a job.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyiceberg.exceptions as theirs
from obstore.exceptions import GenericError, PermissionDeniedError, UnauthenticatedError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from paddock.config import ConfigError
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, StaleAttempt, TransientResourceError
from paddock.log import scrub
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.model import TableName
from paddock.maintenance.paths import overlapping_stores

LONGEST = 500
# What the HTTP client says of a server that it did not reach: what happened stands in the innermost brackets.
NESTED = re.compile(
    r"Pool\(host='(?P<host>[^']+)', port=(?P<port>\d+)\).*Caused by \w+\(.*: (?P<why>[^:]+?)['\"]?\)\)$"
)
# What only somebody else can mend, by the type of what was raised.
PERMANENT: Mapping[type[Exception], tuple[str, str]] = {
    theirs.UnauthorizedError: ("catalog_denied", "Correct the catalog's secrets in the worker's environment."),
    theirs.ForbiddenError: ("catalog_denied", "Ask for the right, or name a login that has it."),
    theirs.OAuthError: ("catalog_denied", "Correct the catalog's secrets in the worker's environment."),
    theirs.NotInstalledError: ("driver_missing", "Install what the catalog's type needs on the worker."),
    theirs.ValidationException: ("table_invalid", "Look at the table with the engine that wrote it."),
    **dict.fromkeys(
        (PermissionError, PermissionDeniedError, UnauthenticatedError),
        ("store_denied", "Grant the worker's login the right to read, list and delete the table's files."),
    ),
}
# What is said of a table that a job was for.
GONE = frozenset(("unknown_table", "table_replaced"))
AWAY = (
    theirs.ServiceUnavailableError,
    theirs.ServerError,
    theirs.TooManyRequestsError,
    theirs.AuthorizationExpiredError,
    theirs.CommitStateUnknownException,
    ConnectionError,
    TimeoutError,
    # What obstore says after its own repetitions, of a store that answers badly or not at all.
    GenericError,
)


def open_catalog(name: str, settings: CatalogSettings) -> Catalog:
    with translated(name):
        return load_catalog(name, **settings.all_properties(name))


def load(catalog: Catalog, table: TableName) -> Table:
    """The table as it is now, its FileIO and vended credentials included."""
    with translated(table.catalog):
        try:
            return catalog.load_table(table.identifier)
        except (theirs.NoSuchTableError, theirs.NoSuchNamespaceError):
            raise PermanentRunnerError(
                f"There is no table {table.database}.{table.name} in the catalog '{table.catalog}'.",
                code="unknown_table",
                hint="Was it dropped or renamed? `paddock tables list` shows what there is.",
            ) from None
        except FileNotFoundError as missing:
            raise _unreadable(table, missing) from missing
        except (ValueError, theirs.ValidationError) as corrupt:
            raise _unreadable(table, corrupt) from corrupt


def _unreadable(table: TableName, problem: Exception) -> PermanentRunnerError:
    """The catalog answered, and what it named is not there or is no metadata."""
    what = "is missing" if isinstance(problem, FileNotFoundError) else "cannot be read"
    return PermanentRunnerError(
        f"The metadata file of {table} {what}: {said(problem)}",
        code="table_invalid",
        hint="The catalog names this file as the table's current state. Restore it, or register an earlier one of the table.",
    )


def load_same(catalog: Catalog, table: TableName, uuid: str) -> Table:
    """The table that the job is for, and not another one that has its name now."""
    found = load(catalog, table)
    if str(found.metadata.table_uuid) != uuid:
        raise PermanentRunnerError(
            f"{table} is another table than the one this job is for: it was dropped and created again.",
            code="table_replaced",
            hint="Ask for its maintenance again.",
        )
    return found


def refuse_managed_store(table: Table, managed_store: str) -> None:
    if "://" in managed_store and overlapping_stores(table.metadata.location, managed_store):
        raise PermanentRunnerError(
            f"The table lies in Paddock's own store ({managed_store}), whose collector removes what no row of Paddock names.",
            code="managed_store",
            hint="Move the table, or give Paddock a store of its own.",
        )


@contextmanager
def translated(catalog: str, *expected: type[Exception]) -> Iterator[None]:
    """Whatever PyIceberg or a driver below it raises leaves as an error for people, but for what the caller expects."""
    known: tuple[type[Exception], ...] = (InfrastructureError, StaleAttempt, theirs.CommitFailedException, *expected)
    try:
        yield
    except known:
        raise
    except Exception as problem:
        raise translate(problem, catalog) from problem


def translate(problem: Exception, catalog: str) -> InfrastructureError:
    if isinstance(problem, ConfigError):
        return PermanentRunnerError(
            f"This worker cannot sign in: {problem}",
            code="catalog_login_missing",
            hint="Give the worker the variable or file, and restart it.",
        )
    for type_, (code, hint) in PERMANENT.items():
        if isinstance(problem, type_):
            return PermanentRunnerError(f"Catalog '{catalog}': {said(problem)}", code=code, hint=hint)
    if isinstance(problem, FileNotFoundError):
        # Somebody else may have deleted it just now; then the table loaded anew does not name it.
        return TransientResourceError(
            f"A file that a table of catalog '{catalog}' names is missing: {said(problem)}",
            code="file_missing",
            hint="Who else deletes files there? If it stays missing, restore it or expire the snapshots that name it.",
        )
    if isinstance(problem, AWAY) or _is_driver_error(problem) or isinstance(problem, OSError):
        return TransientResourceError(
            f"Catalog '{catalog}' or its store did not answer: {said(problem)}",
            code="catalog_unavailable",
            hint="Is it running, and does the worker reach it?",
            budget="cluster",
        )
    return PermanentRunnerError(
        f"Catalog '{catalog}': {type(problem).__name__}: {said(problem)}",
        code="catalog_failed",
        hint=f"Check what stands in [catalogs.{catalog}]: `paddock catalogs check {catalog}`.",
    )


def said(problem: BaseException) -> str:
    """Its first line, without secrets: drivers quote addresses with what unlocks them."""
    if nested := NESTED.search(str(problem)):
        return scrub(f"{nested['host']}:{nested['port']}: {nested['why']}")[:LONGEST]
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    return scrub(lines[0])[:LONGEST]


def _is_driver_error(problem: Exception) -> bool:
    """Of the HTTP client and of the SQL driver, which need not be installed here."""
    names = {f"{kind.__module__}.{kind.__name__}" for kind in type(problem).__mro__}
    return bool(
        names
        & {"requests.exceptions.ConnectionError", "requests.exceptions.Timeout", "sqlalchemy.exc.OperationalError"}
    )


def summary_of(snapshot: Any) -> Mapping[str, str]:
    """What a snapshot's writer said of it."""
    if snapshot.summary is None:
        return {}
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}
