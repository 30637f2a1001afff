"""`paddock snapshots`: the files of a mapping's version, created together."""

import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import App, Parameter

from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.downloading import fetch, wanted_folder
from paddock.cli.errors import FAILED
from paddock.cli.jobs.progress import percent
from paddock.cli.jobs.watching import bars
from paddock.cli.output import STYLES, WATCH_SECONDS, Form, Item, Output, Watch, dump, is_terminal, show, show_one
from paddock.exports.commands.export import Engine, Role
from paddock.exports.commands.mappings import find
from paddock.exports.commands.snapshot_words import COLUMNS, FILES, FINISHED, MANIFESTS, PARTS, detail, key_of, sheet

app = App(name="snapshots", help="The files of a mapping's version, created together.")

LIVE = ("pending", "creating")


@app.command
def create(
    mapping: str,
    /,
    *,
    version: int | None = None,
    engine: Engine = None,
    role: Role = None,
    catalog: str | None = None,
    schema: str | None = None,
    name: str | None = None,
    description: str | None = None,
    ttl: str | None = None,
    watch: Watch = False,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Create a snapshot of a mapping's version: a job for each of its nodes and edges.

    Parameters
    ----------
    mapping:
        The mapping's name or id.
    version:
        Default: the newest.
    engine:
        Which engine; needed where there are several.
    catalog:
        Catalog of the queries' unqualified names, where the engine has catalogs.
    schema:
        Schema of the queries' unqualified names, where the engine has schemas.
    name:
        Default: the mapping's name and version.
    ttl:
        Delete it after this long: 12h, 30d, P30D.
    """
    server = open_server(connect)
    asked: dict[str, Any] = {
        "mapping_id": find(server, "mapping", mapping),
        "mapping_version": version,
        "engine": engine,
        "catalog": catalog,
        "schema": schema,
        "name": name,
        "description": description,
        "ttl": ttl,
    }
    body = {key: value for key, value in asked.items() if value is not None}
    return _show_snapshot(server, server.make_work("/api/snapshots", body, role=role), watch, output)


@app.command(name="list")
def list_snapshots(
    *,
    mapping: str | None = None,
    status: str | None = None,
    q: str | None = None,
    owner: str | None = None,
    limit: int = 20,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """List snapshots, newest first.

    Parameters
    ----------
    mapping:
        Only of this mapping, by its name or id.
    status:
        Only these: pending, creating, ready, failed, cancelled, deleting; several with commas.
    q:
        Only those with this in their name or description.
    owner:
        Only theirs.
    limit:
        How many at most.
    """
    server = open_server(connect)
    mapping_id = None if mapping is None else find(server, "mapping", mapping)
    found = server.pages("/api/snapshots", limit, mapping=mapping_id, status=status, q=q, owner=owner)
    show(found, COLUMNS, output, none="No snapshots.")
    return 0


@app.command(name="show")
def show_snapshot(snapshot: str, /, *, watch: Watch = False, output: Output = "table", connect: Connect = HERE) -> int:
    """Show a snapshot and its parts; with --watch until it has ended, and then exit 1 unless it is ready.

    Parameters
    ----------
    snapshot:
        Its id or name.
    """
    server = open_server(connect)
    return _show_snapshot(server, server.get(_path(server, snapshot)), watch, output)


@app.command
def retry(
    snapshot: str,
    /,
    *,
    role: Role = None,
    watch: Watch = False,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Run what failed or was cancelled again, under the role it was made with; what completed stays.

    Parameters
    ----------
    snapshot:
        Its id or name.
    """
    server = open_server(connect)
    return _show_snapshot(server, server.make_work(f"{_path(server, snapshot)}/retry", None, role=role), watch, output)


@app.command
def cancel(snapshot: str, /, *, reason: str | None = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Cancel all jobs of a snapshot that have not ended.

    Parameters
    ----------
    snapshot:
        Its id or name.
    reason:
        For whoever looks at it later.
    """
    server = open_server(connect)
    cancelled = server.post(f"{_path(server, snapshot)}/cancel", {"reason": reason})
    show_one(cancelled, output, person=lambda one: f"{one['name']} is {one['status']}.")
    return 0


@app.command
def delete(snapshot: str, /, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Delete a snapshot and its files; refused while jobs are at work for it.

    Parameters
    ----------
    snapshot:
        Its id or name.
    """
    server = open_server(connect)
    gone = server.delete(_path(server, snapshot))
    show_one(gone, output, person=lambda one: f"{one['name']} is being deleted.")
    return 0


@app.command
def manifest(
    snapshot: str,
    /,
    *,
    files: Annotated[bool, Parameter(negative=())] = False,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Show what a ready snapshot consists of.

    Parameters
    ----------
    snapshot:
        Its id or name.
    files:
        With each file, read from the store.
    """
    server = open_server(connect)
    found = server.get(f"{_path(server, snapshot)}/manifest", files=files or None)
    if output in ("json", "yaml"):
        dump(found, output)
    elif files:
        show([file for part in found["parts"] for file in part["files"]], FILES, output, name="key", none="No files.")
    else:
        show(found["parts"], MANIFESTS, output, name="manifest", none="No parts.")
    return 0


@app.command
def download(
    snapshot: str,
    /,
    *,
    to: str,
    force: Annotated[bool, Parameter(negative=())] = False,
    connect: Connect = HERE,
) -> int:
    """Download a ready snapshot: manifest.json, and a folder for each node and edge; a broken download resumes.

    Parameters
    ----------
    snapshot:
        Its id or name.
    to:
        A folder.
    force:
        Replace the files of an earlier download in the folder; anything else in it is refused.
    """
    target = wanted_folder(to, force=force)
    server = open_server(connect)
    fetch(server, {"id": find(server, "snapshot", snapshot)}, target, "snapshot")
    return 0


def _path(server: Server, snapshot: str) -> str:
    return f"/api/snapshots/{find(server, 'snapshot', snapshot)}"


def _show_snapshot(server: Server, snapshot: Item, watch: bool, output: Form) -> int:
    if watch:
        snapshot = _watched(server, snapshot, output)
    show_one(snapshot, output, person=sheet)
    if output == "table":
        show(snapshot["parts"], PARTS, output, none="No parts.")
    return FAILED if watch and snapshot["status"] != "ready" else 0


def _watched(server: Server, snapshot: Item, output: Form) -> Item:
    """The snapshot once it has ended. Only a person is shown the way there: bars on a terminal, lines in a pipe."""
    if output != "table":
        return _until_ended(server, snapshot, lambda now: None)
    if not is_terminal():
        return _until_ended(server, snapshot, _lines())
    with bars() as progress:
        tasks = {
            key_of(part): progress.add_task(part["name"], total=100, status="", detail="") for part in snapshot["parts"]
        }

        def draw(now: Item) -> None:
            for part in now["parts"]:
                style = STYLES.get(part["status"], "")
                progress.update(
                    tasks[key_of(part)],
                    completed=100 if part["status"] == "completed" else percent(part) or 0,
                    status=f"[{style}]{part['status']:<9}[/]" if style else part["status"],
                    detail=detail(part).replace("[", "\\["),
                )
                if part["status"] in FINISHED:
                    progress.stop_task(tasks[key_of(part)])

        return _until_ended(server, snapshot, draw)


def _until_ended(server: Server, snapshot: Item, tell: Callable[[Item], None]) -> Item:
    while True:
        tell(snapshot)
        if snapshot["status"] not in LIVE:
            return snapshot
        time.sleep(WATCH_SECONDS)
        snapshot = server.get(f"/api/snapshots/{snapshot['id']}")


def _lines() -> Callable[[Item], None]:
    before: dict[str, str] = {}

    def tell(now: Item) -> None:
        for part in now["parts"]:
            if before.get(key_of(part)) != part["status"]:
                before[key_of(part)] = part["status"]
                sys.stdout.write(f"{part['name']}  {part['status']}  {detail(part)}".rstrip() + "\n")
        sys.stdout.flush()

    return tell
