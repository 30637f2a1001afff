"""The process that runs one query in SQLite: `python -m paddock.engines.children.sqlite_child PARENT FD`."""

import sys

from paddock.engines.children import sandbox


def main() -> int:
    sandbox.begin(int(sys.argv[1]))
    from paddock.engines.children import sqlite_session

    return sqlite_session.serve(int(sys.argv[2]))


if __name__ == "__main__":
    sys.exit(main())
