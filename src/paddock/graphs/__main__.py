"""`python -m paddock.graphs`: the process of one instance, started by a runtime."""

import sys

from paddock.child_processes.beginning import import_quickly


def main() -> int:
    import_quickly("paddock.graphs.serving")
    from paddock.graphs.serving import run

    return run()


if __name__ == "__main__":
    sys.exit(main())
