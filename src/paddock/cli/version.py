"""`paddock version`."""

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.errors import CommandFailed
from paddock.cli.output import Output, show_one


def version(*, output: Output = "table", connect: Connect = HERE) -> int:
    """Print the version here and, when a server answers, the one there."""
    import platform

    import paddock

    told = {"version": paddock.__version__, "python": platform.python_version(), "server": _server_version(connect)}

    def person(_: object) -> str:
        there = f", server {told['server']}" if told["server"] else ""
        return f"paddock {told['version']} (Python {told['python']}){there}"

    show_one(told, output, name="version", person=person)
    return 0


def _server_version(connect: Connect) -> str | None:
    """None as well for a server that is away: this command is for asking what is installed."""
    try:
        answer = open_server(connect).answer("GET", "/health", timeout=2)
        found = answer.get("data", answer).get("version")
    except CommandFailed:
        return None
    return str(found) if found else None
