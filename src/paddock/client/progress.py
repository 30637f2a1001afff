"""How far an instance is on its way to `running`, in words and as a bar where somebody looks."""

import contextlib
import html
import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from paddock.client.errors import Instance
from paddock.jobs.reports import how_far, share

Tell = Callable[[Instance], None]
MOST_WORDS = 120

PHASES = {
    "waiting": "waits for its snapshot",
    "starting": "starts",
    "fetching": "fetches the files",
    "schema": "makes the tables",
    "nodes": "loads nodes",
    "edges": "loads edges",
    "checking": "counts what it loaded",
}


def percent(instance: Instance) -> float:
    if instance["status"] == "running":
        return 100.0
    return how_far(instance.get("progress")).percent or 0.0


def in_words(instance: Instance) -> str:
    """`loads edges, 43 %, 12 s left`; of one that is not on its way, its status."""
    if instance["status"] not in ("waiting_for_snapshot", "starting"):
        return str(instance["status"])
    known = how_far(instance.get("progress"))
    phase = known.phase or ("waiting" if instance["status"] == "waiting_for_snapshot" else "starting")
    left = "" if known.left_seconds is None else f"{known.left_seconds:.0f} s left"
    words = PHASES.get(phase, phase)
    if waiting_for := (instance.get("progress") or {}).get("waiting_for"):
        # What a cluster says of it may be long, and hold anything.
        printable = "".join(character if character.isprintable() else " " for character in str(waiting_for))
        words = f"waits for {textwrap.shorten(printable, MOST_WORDS, placeholder=' …')}"
    return ", ".join(word for word in (words, share(known.percent), left) if word)


@contextlib.contextmanager
def progress_bar(name: str) -> Iterator[Tell | None]:
    """A bar in a notebook or on a terminal; None where nobody looks."""
    if _in_notebook():
        yield _notebook_bar(name)
    elif sys.stderr.isatty():
        with _terminal_bar(name) as tell:
            yield tell
    else:
        yield None


def _in_notebook() -> bool:
    """Only a shell with a kernel shows HTML. IPython is asked only where it is loaded already."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


def _notebook_bar(name: str) -> Tell:
    display: Any = importlib.import_module("IPython.display")
    handle: Any = None

    def tell(instance: Instance) -> None:
        nonlocal handle
        bar = f'<progress value="{percent(instance):.0f}" max="100"></progress>'
        shown = display.HTML(f"<div>{html.escape(name)} {bar} {html.escape(in_words(instance))}</div>")
        if handle is None:
            handle = display.display(shown, display_id=True)
        else:
            handle.update(shown)

    return tell


@contextlib.contextmanager
def _terminal_bar(name: str) -> Iterator[Tell]:
    """On stderr, so that it never mixes with an answer."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.fields[words]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task(escape(name), total=100, words="")

        def tell(instance: Instance) -> None:
            progress.update(task, completed=percent(instance), words=escape(in_words(instance)))

        yield tell
