"""`paddock kinds`: what can run, and whether it may."""

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import App, Parameter

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.output import Column, Item, Output, Watch, field, show_one, show_or_watch

app = App(name="kinds", help="What can run, and whether it may.")

Reason = Annotated[str | None, Parameter(help="Why: shown beside the kind and kept in the audit log.")]


@app.command(name="list")
def list_kinds(*, output: Output = "table", watch: Watch = False, connect: Connect = HERE) -> int:
    """List the kinds with their queues, and whether a live worker offers them."""
    server = open_server(connect)
    return show_or_watch(
        lambda: server.pages("/api/kinds", None), COLUMNS, output, watch=watch, name="name", none="No kinds."
    )


@app.command
def pause(kind: str, *, reason: Reason = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Let nothing new of a kind be claimed. What runs goes on; submitted jobs are still looked after."""
    return _switch(connect, kind, "pause", reason, output)


@app.command
def resume(kind: str, *, reason: Reason = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Let a paused kind be claimed again."""
    return _switch(connect, kind, "resume", reason, output)


def _switch(connect: Connect, kind: str, verb: str, reason: str | None, output: Any) -> int:
    server = open_server(connect)
    changed = server.post(f"/api/kinds/{kind}/{verb}", {"reason": reason} if reason else {})
    show_one(changed or {"name": kind}, output, name="name", person=lambda _: f"{kind} is {verb}d.")
    return 0


def state(kind: Item) -> str:
    if kind.get("paused"):
        why = f": {kind['pause_reason']}" if kind.get("pause_reason") else ""
        return f"paused by {kind.get('paused_by') or 'somebody'}{why}"
    if kind.get("internal"):
        return "runs inside the control plane"
    return "ready" if kind.get("offered") else "no live worker offers it"


COLUMNS: Sequence[Column] = (
    field("name", "kind"),
    Column("submit", lambda kind: ", ".join(kind.get("submit") or ()) or "internal"),
    Column("pending", lambda kind: str(kind.get("pending") or 0), right=True),
    Column("running", lambda kind: str(kind.get("claimed") or 0), right=True),
    Column("submitted", lambda kind: str(kind.get("submitted") or 0), right=True),
    Column("state", state, wide=True),
)
