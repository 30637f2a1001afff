"""`paddock workers`: who runs the jobs."""

from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Parameter

from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.errors import NOT_FOUND, CommandFailed, wrong_usage
from paddock.cli.output import Column, Item, Output, Watch, field, show_one, show_or_watch
from paddock.cli.wording import ago

app = App(name="workers", help="Who runs the jobs.")


@app.command(name="list")
def list_workers(*, output: Output = "table", watch: Watch = False, connect: Connect = HERE) -> int:
    """List the workers' sessions with what they run and when they last gave a sign of life."""
    server = open_server(connect)
    return show_or_watch(
        lambda: server.pages("/api/workers", None),
        COLUMNS,
        output,
        watch=watch,
        name="session",
        none="No workers. Start one with `paddock worker`.",
    )


@app.command
def quiet(
    worker: str,
    *,
    off: Annotated[bool, Parameter(negative=())] = False,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Let a worker finish what it runs and claim nothing new.

    Parameters
    ----------
    worker:
        Its id, or its session.
    off:
        Let it claim again.
    """
    server = open_server(connect)
    session = find_session(server, worker)
    changed = server.post(f"/api/workers/{session}/quiet", {"quiet": not off})
    told = f"{worker} claims again." if off else f"{worker} finishes what it runs and claims nothing new."
    show_one(changed or {"session": session}, output, name="session", person=lambda _: told)
    return 0


def find_session(server: Server, worker: str) -> str:
    live = [seen for seen in server.pages("/api/workers", None) if seen.get("live", True)]
    found = [str(seen["session"]) for seen in live if worker in (seen["worker_id"], str(seen["session"]))]
    if not found:
        raise CommandFailed(f"There is no live worker '{worker}'.", exit_code=NOT_FOUND)
    if len(found) > 1:
        raise wrong_usage(f"{len(found)} sessions call themselves '{worker}': name one of them.", "\n".join(found))
    return found[0]


def state(worker: Item) -> str:
    if not worker.get("live", True):
        return "gone"
    if worker.get("dying"):
        return "shutting down"
    return "quiet" if worker.get("quiet") else "live"


COLUMNS: Sequence[Column] = (
    field("worker_id", "worker"),
    field("session"),
    Column("state", state),
    field("version"),
    Column("running", lambda worker: f"{worker.get('running') or 0}/{worker.get('slots') or '?'}", right=True),
    Column("last beat", lambda worker: ago(worker.get("beat_at"))),
    Column("since", lambda worker: ago(worker.get("started_at"))),
    Column("kinds", lambda worker: ", ".join(worker.get("kinds") or ()), wide=True),
)
