"""What a failure of Spark means: line 1 of the Java text, never the stack, and one table for the classes of errors.

Spark says what happened by an error class in brackets (`[TABLE_OR_VIEW_NOT_FOUND]`) or by the name of a Java exception.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.log import scrub

LONGEST = 500
UNAVAILABLE = "engine_unavailable"
_CLASS = re.compile(r"\[([A-Z][A-Z0-9_.]{2,100})\]")
_JAVA = re.compile(r"\b(?:[a-z][\w]*\.)+([A-Z]\w*(?:Exception|Error))\b:?")


@dataclass(frozen=True, slots=True)
class Meaning:
    kind: Literal["permanent", "transient"]
    code: str
    hint: str | None = None


_ELSE = "Somebody else writes to the table just now; it is tried again later."
_RIGHTS = "Grant the login of the engine the right to change this table."
_LOST = "The session is gone; the next attempt makes another one."
MEANINGS: Mapping[str, Meaning] = {
    "CommitFailedException": Meaning("transient", "commit_conflict", _ELSE),
    "ValidationException": Meaning("transient", "commit_conflict", _ELSE),
    "CommitStateUnknownException": Meaning("transient", "commit_unknown", "The next attempt looks whether it landed."),
    "ForbiddenException": Meaning("permanent", "role_denied", _RIGHTS),
    "NotAuthorizedException": Meaning("permanent", "role_denied", _RIGHTS),
    "AccessControlException": Meaning("permanent", "role_denied", _RIGHTS),
    "INSUFFICIENT_PERMISSIONS": Meaning("permanent", "role_denied", _RIGHTS),
    "ServiceUnavailableException": Meaning("transient", UNAVAILABLE),
    "OutOfMemoryError": Meaning("permanent", "engine_out_of_memory", "Give the engine more memory, or rewrite less at once."),
    "PROCEDURE_NOT_FOUND": Meaning("permanent", "procedure_not_found", "Is `engine_catalog` an Iceberg catalog of the engine's?"),
    "MISSING_CATALOG_ABILITY.PROCEDURES": Meaning("permanent", "procedure_not_found", "Is `engine_catalog` an Iceberg catalog of the engine's?"),
    "ROUTINE_NOT_FOUND": Meaning("permanent", "procedure_not_found", "Is `engine_catalog` an Iceberg catalog of the engine's?"),
}  # fmt: skip
# Of a server that says only so: sessions end when their client does, or when somebody closes them.
NO_SESSION = ("Session does not exist", "Invalid SessionHandle")


def failure(text: str) -> InfrastructureError:
    """The exception for what the server said."""
    line = first_line(text)
    if any(said in text for said in NO_SESSION):
        return TransientResourceError(f"Spark: {line}", code="session_lost", hint=_LOST)
    java, named = _JAVA.findall(text.split("\n\tat ", 1)[0]), _CLASS.search(line)
    names = [*([named[1]] if named else []), *reversed(java)]
    meaning = next((MEANINGS[name] for name in names if name in MEANINGS), None)
    if meaning is None:
        code = named[1].lower() if named else "spark_failed"
        return PermanentRunnerError(f"Spark: {line}", code=code, hint="The server's log says more.")
    if meaning.kind == "transient":
        return TransientResourceError(f"Spark: {line}", code=meaning.code, hint=meaning.hint)
    return PermanentRunnerError(f"Spark: {line}", code=meaning.code, hint=meaning.hint)


def first_line(text: str) -> str:
    """Without the names of the Java exceptions that it went through."""
    line = (text.strip().splitlines() or ["no message"])[0]
    # Of each exception the line says the next one's; the last has the sentence.
    ends = [java.end() for java in _JAVA.finditer(line) if line[java.end() :].strip()]
    line = line[ends[-1] :].strip() if ends else line
    said = scrub(line)[:LONGEST]
    return said if said.endswith((".", "!", "?")) else f"{said}."
