"""The process that runs one query in DuckDB: `python -m paddock.engines.children.duckdb_child PARENT FD`."""

import sys

from paddock.engines.children import sandbox


def main() -> int:
    sandbox.begin(int(sys.argv[1]))
    from paddock.engines.children import duckdb_session

    return duckdb_session.serve(int(sys.argv[2]))


if __name__ == "__main__":
    sys.exit(main())
