"""The two graph engines by one interface. Both descend from the same code, so what differs is the module's name.

Everything that the engine decides by the size of the machine is set: its defaults take 80 % of the memory per process.
"""

import importlib
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

# Address space that is only reserved; a power of two.
MOST_DATABASE_BYTES = 1 << 36


def load_engine(wrapper_type: str) -> ModuleType:
    """Before the process confines itself: an import reads and tries more than an engine needs later."""
    # `prepare` is how several statements in one text are refused, and both engines call it deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    module = importlib.import_module(wrapper_type)
    # One of them loads its library, and with it the system's, only when it is first asked something.
    module.Database.get_version()
    return module


class GraphEngine:
    """One database that is open in this process."""

    def __init__(
        self, wrapper_type: str, database: Path, *, pool_bytes: int, threads: int, read_only: bool = False
    ) -> None:
        self._module = load_engine(wrapper_type)
        self._database = self._module.Database(
            str(database),
            buffer_pool_size=pool_bytes,
            max_num_threads=threads,
            read_only=read_only,
            max_db_size=MOST_DATABASE_BYTES,
        )

    def connect(self) -> Any:
        return self._module.Connection(self._database)

    def close(self) -> None:
        self._database.close()


def run(connection: Any, statement: str, parameters: dict[str, Any] | None = None) -> Any:
    """Of our own statements, not of a user's."""
    return connection.execute(statement, parameters or {})


def scalar(connection: Any, statement: str) -> Any:
    return run(connection, statement).get_next()[0]


def quoted(name: str) -> str:
    """`plan` refuses names with a backtick in them: the engine has no way to write one."""
    return f"`{name}`"
