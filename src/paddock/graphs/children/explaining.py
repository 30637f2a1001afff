"""What the engines' own words mean. Facts by text, because their errors have no codes; the texts are in one place."""

import re
from typing import Any

from paddock.graphs.problems import LoadFailed

MEMORY = ("bad_alloc", "Unable to allocate memory", "Buffer manager exception", "out of memory", "Failed to claim")
DISK = ("No space left on device", "Disk quota exceeded", "File too large")
READ_ONLY = ("read-only", "read only")
INTERRUPTED = "Interrupted"
SEVERAL = "We do not support prepare multiple statements"
# Exceptions that repeat what somebody wrote, a name or a value: their words tell nothing of the engine.
QUOTING = frozenset({"parser", "binder", "conversion", "catalog", "copy"})

_KIND = re.compile(r"([A-Za-z ]{1,40}) [Ee]xception: ")

_DUPLICATE = re.compile(r"duplicated primary key value (.*?),? which violates", re.DOTALL)
_PLACE = re.compile(r"\(line: (\d+), offset: (\d+)\)")
_PARAMETER = re.compile(r"Parameter (\w+) not found")


class TableProblem(Exception):
    """The engine refused a statement of the loader's."""

    def __init__(self, table: str, doing: str, words: str) -> None:
        super().__init__(words)
        self.table = table
        self.doing = doing


def _says(words: str, signs: tuple[str, ...], *, anywhere: bool = False) -> bool:
    """Whether the engine says one of these by itself: where a message begins, the reported one or one that it wraps. What may be
    `anywhere` in a message is still no word of whoever wrote the query or the data."""
    kind = _KIND.match(words)
    if (kind is not None and kind[1].lower() in QUOTING) or _DUPLICATE.search(words):
        return False
    if anywhere:
        return any(sign in words for sign in signs)
    beginnings = "|".join(map(re.escape, signs))
    return re.search(rf"(?:^|[Ee]xception: |[Ee]rror: )(?:std::)?(?:{beginnings})", words) is not None


def load_failure(problem: Exception) -> LoadFailed | None:
    """None: nobody can make sense of it."""
    if isinstance(problem, LoadFailed):
        return problem
    words = str(problem)
    at = f"{problem.table}: " if isinstance(problem, TableProblem) else ""
    if isinstance(problem, MemoryError) or _says(words, MEMORY):
        return LoadFailed(
            "out_of_memory", f"{at}The memory of the instance is too small for the load.", "Ask for more memory."
        )
    if _says(words, DISK, anywhere=True):
        return LoadFailed(
            "disk_full", f"{at}There is no room left on the disk.", "Make room, then reopen the instance."
        )
    if not isinstance(problem, TableProblem):
        return None
    if problem.doing == "schema":
        return LoadFailed(
            "ddl_refused", f"{at}The graph engine refused the table: {first_line(words)}", "Change the definition."
        )
    return _copy_failure(problem, words)


def _copy_failure(problem: TableProblem, words: str) -> LoadFailed:
    if match := _DUPLICATE.search(words):
        return LoadFailed(
            "key_duplicate",
            f"{problem.table}: the key '{match[1][:200]}' comes twice.",
            "Make it unique in the node's SQL.",
        )
    if "non-null constraint" in words:
        return LoadFailed(
            "key_null", f"{problem.table}: a key is NULL.", "Leave such rows out in the node's SQL, or give them a key."
        )
    return LoadFailed(
        "value_does_not_fit",
        f"{problem.table}: a value cannot be loaded: {first_line(words)}",
        "Change the declared type, or the value in the SQL.",
    )


def query_failure(problem: BaseException) -> dict[str, Any]:
    """The facts of an ERROR frame for a query. Whether an interrupt was a time-out or a cancel, its caller knows."""
    words = str(problem).strip() or type(problem).__name__
    if isinstance(problem, MemoryError) or _says(words, MEMORY):
        return {
            "code": "query_out_of_memory",
            "message": "The query needs more memory than the instance has.",
            "hint": "Return less, filter earlier, or make an instance with more memory.",
        }
    if words.startswith(INTERRUPTED):
        return {"code": "interrupted", "message": words}
    if _says(words.lower(), READ_ONLY, anywhere=True) and not words.startswith("Runtime"):
        return {
            "code": "read_only",
            "message": "The graph can only be read: statements that change data or schema are refused.",
            "hint": "Change the mapping's SQL and make a new snapshot.",
        }
    if _says(words, (SEVERAL,)):
        return {"code": "query_failed", "message": "A query is one statement; this text has several."}
    failure: dict[str, Any] = {"code": "query_failed", "message": words[:4000]}
    if match := _PLACE.search(words):
        failure["details"] = {"line": int(match[1]), "column": int(match[2]) + 1}
    if match := _PARAMETER.match(words):
        failure["hint"] = f"Give it a value in `parameters`; on the command line with --param {match[1]}=…"
    return failure


def first_line(words: str) -> str:
    return words.strip().split("\n", 1)[0][:500]
