"""What an error of DuckDB means, in one table. DuckDB reports as JSON (`errors_as_json`)."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from paddock.engines.children.wire import Failure


class Meaning(NamedTuple):
    code: str
    refused: bool = False
    hint: str | None = None
    mistake: bool = False


OUT_OF_MEMORY = Meaning(
    "query_out_of_memory",
    hint="Make it smaller (fewer columns, shorter strings, a filter), or raise memory_bytes of the engine.",
)
SPILL_FULL = Meaning(
    "query_spill_full", hint="Sort or join less at once, or raise spill_bytes (or memory_bytes) of the engine."
)
FAILED = Meaning("query_failed")
# By what the query does with its values, or by a path that names nothing.
MISTAKEN = Meaning("query_failed", mistake=True)
MEANINGS: Mapping[str, Meaning] = {
    "Parser": Meaning("query_refused", refused=True),
    "Syntax": Meaning("query_refused", refused=True),
    "Catalog": Meaning("query_refused", refused=True),
    "Binder": Meaning("query_refused", refused=True),
    "Parameter Not Resolved": Meaning("query_refused", refused=True),
    "Parameter Not Allowed": Meaning("query_refused", refused=True),
    "Not implemented": Meaning("query_refused", refused=True),
    "Permission": Meaning(
        "path_denied", refused=True, hint="A query reads only the folders that the engine names as its roots."
    ),
    "Missing Extension": Meaning(
        "extension_missing", refused=True, hint="Extensions are not loaded by queries, nor from the network."
    ),
    "Autoload": Meaning(
        "extension_missing", refused=True, hint="Extensions are not loaded by queries, nor from the network."
    ),
    "Conversion": MISTAKEN,
    "Divide by Zero": MISTAKEN,
    "Invalid Input": MISTAKEN,
    "Invalid Type": MISTAKEN,
    "Mismatch Type": MISTAKEN,
    "Out of Range": MISTAKEN,
    "Out of Memory": OUT_OF_MEMORY,
    "Allocation": OUT_OF_MEMORY,
    "INTERNAL": Meaning("query_crashed"),
    "FATAL": Meaning("query_crashed"),
}


def explained(problem: Exception, sql: str, before: int | None) -> Failure:
    """`before`: how many bytes of ours stood before the text that failed; None: the text was not ours."""
    facts = _facts(problem)
    kind, message = str(facts["exception_type"]), str(facts["exception_message"])
    meaning = MEANINGS.get(kind, FAILED)
    if meaning is OUT_OF_MEMORY and "max_temp_directory_size" in message:
        meaning = SPILL_FULL
    if "parameter" in message and kind == "Invalid Input":
        meaning = MEANINGS["Binder"]
    if kind == "IO" and message.startswith("No files found that match"):
        meaning = MISTAKEN
    if meaning.code == "extension_missing":
        message = message.partition("\n")[0]  # what follows tells how to install it
    # The parser counts characters, everybody after it bytes.
    line, column = _place(facts.get("position"), sql, before, in_bytes=kind != "Parser")
    return Failure(
        meaning.code,
        _sentence(message),
        hint=meaning.hint,
        refused=meaning.refused,
        mistake=meaning.mistake,
        line=line,
        column=column,
    )


def position_of(problem: Exception) -> int | None:
    position = _facts(problem).get("position")
    return None if position is None else int(str(position))


def uncast(problem: Exception, column: str, native: str) -> Failure:
    """A value that our own cast of the column to what files hold could not keep."""
    # What follows is our name for the column.
    message = str(_facts(problem)["exception_message"]).partition(" when casting from source column")[0]
    return Failure(
        "value_not_exportable",
        f"A value of column '{column}' ({native}) cannot be written: {_sentence(message)}",
        hint="Cast the column to VARCHAR in the query, or leave such rows out.",
        mistake=True,
    )


def _facts(problem: Exception) -> dict[str, Any]:
    """`Kind Error: {...}`, or only the JSON, or (from Python's side of DuckDB) only the words."""
    text = str(problem)
    kind, _, rest = text.partition(" Error: ")
    start = text.find("{")
    try:
        return {"exception_type": kind, "exception_message": rest, **json.loads(text[start:])}
    except (ValueError, TypeError):
        return {"exception_type": kind, "exception_message": rest or text}


def _sentence(message: str) -> str:
    message = message.strip()[:2000]
    return message if message.endswith((".", "!", "?")) else f"{message}."


def _place(position: object, sql: str, before: int | None, *, in_bytes: bool) -> tuple[int | None, int | None]:
    if position is None or before is None:
        return None, None
    offset = int(str(position)) - before
    if not 0 <= offset <= len(sql.encode()):
        return None, None
    text = sql.encode()[:offset].decode("utf-8", "replace") if in_bytes else sql[:offset]
    return text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1
