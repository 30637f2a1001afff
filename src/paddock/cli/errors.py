"""Why a command ends badly: a sentence, what to do, and an exit code."""

FAILED, USAGE, NOT_FOUND, REFUSED = 1, 2, 3, 4
# As a shell says it of what Ctrl-C ended.
INTERRUPTED = 130


class CommandFailed(Exception):
    """Reaches the person as its message and hint, never as a traceback."""

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


def wrong_usage(message: str, hint: str | None = None) -> CommandFailed:
    return CommandFailed(message, hint=hint, exit_code=USAGE)
