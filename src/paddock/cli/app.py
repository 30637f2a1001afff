"""The parser over the table of commands, and the one place where errors become sentences and exit codes."""

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, UnusedCliTokensError

from paddock.cli.commands import ABOUT, sections
from paddock.cli.errors import FAILED, USAGE, CommandFailed


def build() -> App:
    app = App(
        name="paddock",
        help=ABOUT,
        version=_version,
        help_format="plaintext",
        result_action="return_value",
        print_error=False,
        exit_on_error=False,
    )
    for section in sections():
        for command in section.commands:
            app.command(command.target, name=command.name, help=command.help)
    return app


def run(arguments: Sequence[str]) -> int:
    try:
        answer = build()(list(arguments))
        sys.stdout.flush()
        return answer if isinstance(answer, int) else 0
    except CommandFailed as failed:
        tell(failed.message, failed.hint)
        return failed.exit_code
    except CycloptsError as mistake:
        tell(_what_is_wrong(mistake), f"paddock {_understood(arguments)}--help shows what it takes.")
        return USAGE
    except KeyboardInterrupt:
        tell("Interrupted.")
        return 130
    except BrokenPipeError:
        # `paddock jobs list | head`: the reader has seen enough. Python would complain once more while exiting.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # the last line of defence: no traceback reaches a person who did not ask for one
        return _unexpected(error)
    finally:
        if connection := sys.modules.get("paddock.cli.connection"):
            connection.OPENED.close()


def tell(message: str, hint: str | None = None) -> None:
    """For people: on stderr, so that it never mixes with an answer."""
    red, plain = ("\x1b[31m", "\x1b[0m") if _colours() else ("", "")
    sys.stderr.write(f"{red}{message}{plain}\n")
    if hint:
        sys.stderr.write(f"{hint}\n")


def _colours() -> bool:
    return sys.stderr.isatty() and "NO_COLOR" not in os.environ


def _what_is_wrong(mistake: CycloptsError) -> str:
    if isinstance(mistake, UnusedCliTokensError):
        unused = " ".join(mistake.unused_tokens or ())
        return f"The command does not take this: {unused}"
    return str(mistake).strip()


def _understood(arguments: Sequence[str]) -> str:
    """The commands that were understood, for `paddock jobs list --help`."""
    verbs = {command.name: command.verbs.split() for section in sections() for command in section.commands}
    noun, verb = [*arguments[:2], "", ""][:2]
    if noun not in verbs:
        return ""
    return f"{noun} {verb} " if verb in verbs[noun] else f"{noun} "


def _unexpected(error: Exception) -> int:
    from paddock.config import ConfigError
    from paddock.log import scrub

    if isinstance(error, ConfigError):
        tell(str(error))
        return USAGE
    if "PADDOCK_LOG_LEVEL" in os.environ and os.environ["PADDOCK_LOG_LEVEL"].lower() == "debug":
        import traceback

        sys.stderr.write(scrub("".join(traceback.format_exception(error))))
    tell(
        scrub(f"This is a bug in Paddock: {type(error).__name__}: {error}"),
        "PADDOCK_LOG_LEVEL=debug shows where it happened.",
    )
    return FAILED


def _version() -> str:
    import paddock

    return f"paddock {paddock.__version__}"
