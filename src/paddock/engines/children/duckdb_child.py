"""The process that runs one query in DuckDB: `python -m paddock.engines.children.duckdb_child PARENT FD`."""

import sys
from types import ModuleType

from paddock.engines.children import sandbox


def main() -> int:
    sandbox.begin(int(sys.argv[1]))
    served: int = load_session().serve(int(sys.argv[2]))
    return served


def load_session() -> ModuleType:
    """Arrow and DuckDB load numpy wherever it is installed. No query needs it, and its start would be every query's."""
    sys.modules["numpy"] = None  # type: ignore[assignment]  # the documented way to make an import fail
    from paddock.engines.children import duckdb_session

    return duckdb_session


if __name__ == "__main__":
    sys.exit(main())
