"""`paddock drain`: refuse new work, or accept it again."""

from typing import Annotated, Any

from cyclopts import App, Parameter

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.output import Output, show_one

app = App(name="drain", help="Refuse new work, or accept it again.")

Reason = Annotated[str | None, Parameter(help="Why: shown to those who are refused, and kept in the audit log.")]


@app.command
def on(*, reason: Reason = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Refuse new work on all replicas; what is queued goes on."""
    return _switch(connect, True, reason, output)


@app.command
def off(*, reason: Reason = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Accept new work again."""
    return _switch(connect, False, reason, output)


def _switch(connect: Connect, enabled: bool, reason: str | None, output: Any) -> int:
    state = open_server(connect).post("/api/ops/drain", {"enabled": enabled, "reason": reason})
    told = "New work is refused; what is queued goes on." if enabled else "New work is accepted."
    show_one({"drained": enabled, **state}, output, name="drained", person=lambda _: told)
    return 0
