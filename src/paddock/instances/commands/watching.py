"""An instance on its way: a bar on a terminal, a line for each change in a pipe."""

import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from paddock.cli.connection import Connect, Server
from paddock.cli.errors import FAILED, INTERRUPTED, CommandFailed
from paddock.cli.jobs.watching import bars
from paddock.cli.output import Form, Item, is_terminal, show_one
from paddock.instances.commands.words import harmless, sheet, tell_next

if TYPE_CHECKING:
    from paddock.client import Client

Tell = Callable[[Item], None]


def show_instance(server: Server, instance: Item, watch: bool, output: Form, connect: Connect) -> int:
    """With `watch` once it runs or cannot; then 1 unless it runs."""
    if watch:
        instance = watched(server, instance, output, connect)
    show_one(instance, output, person=sheet)
    if output == "table":
        tell_next(instance, connect)
    return FAILED if watch and instance["status"] != "running" else 0


def watched(server: Server, instance: Item, output: Form, connect: Connect) -> Item:
    """Only a person is shown the way there."""
    from paddock.client.progress import in_words, percent

    try:
        if output != "table":
            return _until_settled(server, instance, lambda _: None)
        if not is_terminal():
            return _until_settled(server, instance, _lines())
        with bars() as progress:
            task = progress.add_task(harmless(instance["name"]).replace("[", "\\["), total=100, status="", detail="")

            def draw(now: Item) -> None:
                progress.update(task, completed=percent(dict(now)), detail=in_words(dict(now)).replace("[", "\\["))

            return _until_settled(server, instance, draw)
    except KeyboardInterrupt:
        name = f"{shlex.quote(instance['name'])}{connect.options}"
        raise CommandFailed(
            f"\nInterrupted here; instance {harmless(instance['name'])} goes on at the server.",
            hint=f"  paddock instances show {name} --watch   follows it\n  paddock instances delete {name}   ends it",
            exit_code=INTERRUPTED,
        ) from None


def _until_settled(server: Server, instance: Item, tell: Tell) -> Item:
    from paddock.client import InstanceFailed

    def wait(client: "Client") -> Item:
        try:
            return client.instances.wait_until_running(instance, on_progress=tell)
        except InstanceFailed as failed:
            return failed.instance

    return server.ask(wait)


def _lines() -> Tell:
    from paddock.client.progress import in_words, percent

    before = ""

    def tell(now: Item) -> None:
        nonlocal before
        known = dict(now)
        coarse = f"{in_words(known).split(',')[0]} {percent(known) // 10}"
        if coarse != before:
            before = coarse
            sys.stdout.write(f"{harmless(now['name'])}  {in_words(known)}\n")
            sys.stdout.flush()

    return tell
