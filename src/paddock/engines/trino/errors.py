"""What a failure of Trino means: one table, and the one place that turns its `error` into an exception.

Names that the table does not know are judged by their type; what neither calls retryable fails at once. The code of a
failure is Trino's own name in lower case unless the table gives another, so that people find both.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from paddock.engines.engine import QueryRefused
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.jobs.model import Budget
from paddock.log import scrub


@dataclass(frozen=True, slots=True)
class ErrorMeaning:
    # refused: the query's or its author's matter. permanent: the cluster's. transient: start it again.
    kind: Literal["refused", "permanent", "transient"]
    code: str | None = None
    hint: str | None = None
    budget: Budget = "work"


def refused(code: str | None = None, hint: str | None = None) -> ErrorMeaning:
    return ErrorMeaning("refused", code, hint)


def permanent(code: str | None = None, hint: str | None = None) -> ErrorMeaning:
    return ErrorMeaning("permanent", code, hint)


def transient(budget: Budget, code: str | None = None, hint: str | None = None) -> ErrorMeaning:
    return ErrorMeaning("transient", code, hint, budget)


class QueryFailed(TransientResourceError):
    """This query is over; another one with the same text may do better. Not said of an answer that did not come."""


_NAMES = "Check the name, its catalog and schema, and what the role may see."
_LIMIT = "Export less at once (fewer rows or columns, a filter), or ask for a higher limit."

TRINO_ERRORS: Mapping[str, ErrorMeaning] = {
    "SYNTAX_ERROR": refused(hint="An export is one SELECT (or WITH, VALUES, TABLE), without a second statement."),
    "PERMISSION_DENIED": refused("role_denied", "Ask for the grant, or send another X-Use-Case-Id."),
    "ROLE_NOT_FOUND": refused("role_denied", "Ask for the role, or send another X-Use-Case-Id."),
    "CATALOG_NOT_FOUND": refused(hint=_NAMES),
    "SCHEMA_NOT_FOUND": refused(hint=_NAMES),
    "TABLE_NOT_FOUND": refused(hint=_NAMES),
    "COLUMN_NOT_FOUND": refused(hint=_NAMES),
    "FUNCTION_NOT_FOUND": refused(hint=_NAMES),
    "INVALID_SESSION_PROPERTY": permanent(hint="Correct `session` of this engine in paddock.toml."),
    "QUERY_TEXT_TOO_LARGE": refused(hint="Shorten the query, or make it a view."),
    "USER_CANCELED": permanent(hint="Somebody cancelled the query in Trino. Retry the job to run it again."),
    "ADMINISTRATIVELY_KILLED": permanent(hint="Somebody killed the query in Trino; ask the cluster's operators why."),
    # Nobody asked for its rows for minutes: our process stood still. The cluster is well.
    "ABANDONED_QUERY": transient("work", hint="The worker was too busy to fetch the rows; give it less at once."),
    "NO_NODES_AVAILABLE": transient("cluster"),
    "SERVER_SHUTTING_DOWN": transient("cluster"),
    "SERVER_STARTING_UP": transient("cluster"),
    "TOO_MANY_REQUESTS_FAILED": transient("work"),
    "PAGE_TRANSPORT_ERROR": transient("work"),
    "PAGE_TRANSPORT_TIMEOUT": transient("work"),
    "REMOTE_TASK_ERROR": transient("work"),
    "REMOTE_TASK_MISMATCH": transient("work"),
    "REMOTE_HOST_GONE": transient("work"),
    "QUERY_QUEUE_FULL": transient(
        "cluster", hint="The resource group's queue is full; the export waits and tries again."
    ),
    "ADMINISTRATIVELY_PREEMPTED": transient("cluster"),
    "EXCEEDED_TIME_LIMIT": permanent(hint=_LIMIT),
    "EXCEEDED_CPU_LIMIT": permanent(hint=_LIMIT),
    "EXCEEDED_SCAN_LIMIT": permanent(hint=_LIMIT),
    "EXCEEDED_SPILL_LIMIT": permanent(hint=_LIMIT),
    "EXCEEDED_GLOBAL_MEMORY_LIMIT": permanent(hint=_LIMIT),
    "EXCEEDED_LOCAL_MEMORY_LIMIT": permanent(hint=_LIMIT),
    "CLUSTER_OUT_OF_MEMORY": permanent(hint=_LIMIT),
    # Of the Hive connector, whose external tables an unload writes: EXTERNAL, but it does not go away.
    "HIVE_PATH_ALREADY_EXISTS": permanent(hint="The location must be empty; a new attempt takes a new one."),
}

TRINO_ERROR_TYPES: Mapping[str, ErrorMeaning] = {
    "USER_ERROR": refused(),
    "INTERNAL_ERROR": permanent(hint="Trino failed; its log says why, under the query id."),
    "INSUFFICIENT_RESOURCES": permanent(hint=_LIMIT),
    # A source system behind Trino.
    "EXTERNAL": transient("work"),
}

UNKNOWN = permanent(hint="Trino failed in a way Paddock does not know; its log says why, under the query id.")

_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,79}")
_PLACE = re.compile(r"line (\d+):(\d+): ")
# Everything that Trino's grammar would have liked better.
_EXPECTING = re.compile(r"\. Expecting: .{80,}\Z")
# An address of the protocol is a capability: whoever has it may read the result.
_CAPABILITY = re.compile(r"\bhttps?://[^\s'\"<>]+", re.IGNORECASE)
LONGEST = 2000


def verdict_on(name: str, type_: str) -> ErrorMeaning:
    return TRINO_ERRORS.get(name) or TRINO_ERROR_TYPES.get(type_, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Wrapped:
    """How the text that Trino saw differs from its author's: lines before it, columns before it on a line with a
    syntax error, and how long it is."""

    sql: str = ""
    lines: int = 0
    syntax_columns: int = 0


def failure(error: Mapping[str, Any], query_id: str | None, wrapped: Wrapped | None = None) -> InfrastructureError:
    """The exception for the `error` of a page."""
    name = str(error.get("errorName") or "")
    name = name if _NAME.fullmatch(name) else "UNKNOWN_ERROR"
    verdict = verdict_on(name, str(error.get("errorType") or ""))
    line, column = place(error, name, wrapped or Wrapped())
    message = _PLACE.sub("", plain(str(error.get("message") or "no message")), count=1)
    message = _EXPECTING.sub("", message)
    where = f"line {line}:{column}: " if line is not None else ""
    asked = f" [query {query_id}]" if query_id else ""
    text = f"Trino: {where}{message}{'' if message.endswith(('.', '!', '?')) else '.'}{asked}"
    code = verdict.code or name.lower()
    if verdict.kind == "refused":
        return QueryRefused(text, code=code, hint=verdict.hint, line=line, column=column)
    if verdict.kind == "permanent":
        return PermanentRunnerError(text, code=code, hint=verdict.hint)
    return QueryFailed(text, code=code, hint=verdict.hint, budget=verdict.budget)


def place(error: Mapping[str, Any], name: str, wrapped: Wrapped) -> tuple[int | None, int | None]:
    """Line and column in the text as its author wrote it, both from 1."""
    found = error.get("errorLocation")
    if not isinstance(found, Mapping):
        return None, None
    line, column = found.get("lineNumber"), found.get("columnNumber")
    if not isinstance(line, int) or not isinstance(column, int):
        return None, None
    line -= wrapped.lines
    if name == "SYNTAX_ERROR":
        column = max(1, column - wrapped.syntax_columns)
    if wrapped.sql:
        written = wrapped.sql.splitlines() or [""]
        # What is missing at the text's end is found at the wrap's.
        if line > len(written):
            return len(written), len(written[-1]) + 1
    return (line, column) if line >= 1 else (None, None)


def plain(text: str) -> str:
    """Somebody else's words, fit for a message: short, one line, without addresses and secrets."""
    return scrub(_CAPABILITY.sub("<address>", " ".join(text[: LONGEST * 2].split())))[:LONGEST]
