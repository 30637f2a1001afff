"""`paddock instances list`, `show`, `logs` and `events`."""

import sys

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.events import COLUMNS as EVENTS
from paddock.cli.output import Output, Watch, dump, show
from paddock.exports.commands.mappings import find
from paddock.instances.commands.naming import Name, path_of
from paddock.instances.commands.watching import show_instance as shown
from paddock.instances.commands.words import COLUMNS, harmless


def list_instances(
    *,
    mapping: str | None = None,
    snapshot: str | None = None,
    owner: str | None = None,
    status: str | None = None,
    q: str | None = None,
    limit: int = 50,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """List instances, your own and those shared with you, newest first.

    Parameters
    ----------
    mapping:
        Only of this mapping, by its name or id.
    snapshot:
        Only of this snapshot, by its name or id.
    owner:
        Only theirs.
    status:
        Only these: waiting_for_snapshot, starting, running, stopping, failed; several with commas.
    q:
        Only those with this in their name or description.
    limit:
        How many at most.
    """
    server = open_server(connect)
    found = server.pages(
        "/api/instances",
        limit,
        mapping=None if mapping is None else find(server, "mapping", mapping),
        snapshot=None if snapshot is None else find(server, "snapshot", snapshot),
        owner=owner,
        status=status,
        q=q,
    )
    show(found, COLUMNS, output, none="No instances. `paddock instances create MAPPING` makes one.")
    return 0


def show_instance(instance: Name, /, *, watch: Watch = False, output: Output = "table", connect: Connect = HERE) -> int:
    """Show an instance; with --watch until it runs, and then exit 1 unless it does."""
    server = open_server(connect)
    return shown(server, server.get(path_of(server, instance)), watch, output, connect)


def logs(instance: Name, /, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Show the end of an instance's log, also of one that failed."""
    server = open_server(connect)
    told = server.get(f"{path_of(server, instance)}/logs")
    if output in ("json", "yaml"):
        dump(told, output)
        return 0
    text = harmless(told["log"] or "")
    sys.stdout.write(text if not text or text.endswith("\n") else f"{text}\n")
    if not text:
        sys.stderr.write("It has said nothing.\n")
    return 0


def events(instance: Name, /, *, limit: int = 50, output: Output = "table", connect: Connect = HERE) -> int:
    """List what happened to an instance, newest first.

    Parameters
    ----------
    limit:
        How many at most.
    """
    server = open_server(connect)
    found = server.pages(f"{path_of(server, instance)}/events", limit)
    show(found, EVENTS, output, none="Nothing has happened to it yet.")
    return 0
