"""The command line: one file per noun. Everything heavy is imported by the command that needs it."""

import sys
from collections.abc import Sequence

from paddock.cli.commands import overview


def main(arguments: Sequence[str] | None = None) -> None:
    """`paddock` and `paddock --help` answer from the table alone: the parser would cost ten times as much."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments in (["--help"], ["-h"], ["help"]):
        sys.stdout.write(overview())
        sys.exit(0)
    from paddock.cli.app import run

    sys.exit(run(arguments))
