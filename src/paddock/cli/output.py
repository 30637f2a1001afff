"""Answers: a table for people, JSON and YAML for programs, names for pipes."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Form = Literal["table", "json", "yaml", "name"]
Output = Annotated[Form, Parameter(name=["--output", "-o"], help="Form of the answer.")]
Watch = Annotated[bool, Parameter(name=["--watch", "-w"], negative=(), help="Keep showing it as it changes.")]
Item = Mapping[str, Any]

WATCH_SECONDS = 2.0
GAP = 2
# From here on there is room for whole ids beside everything else.
WIDE = 150
STYLES: Mapping[str, str] = {
    "pending": "yellow",
    "claimed": "cyan",
    "submitted": "blue",
    "completed": "green",
    "failed": "red",
    "cancelled": "magenta",
}


@dataclass(frozen=True)
class Column:
    title: str
    cell: Callable[[Item], str]
    right: bool = False
    # Gives way when the terminal is narrow; all others are shown whole.
    wide: bool = False
    # In a pipe a wide column is as long as its longest cell, and pads all others to it: SQL would fill screens.
    longest_in_pipe: int | None = None
    # The title is a name that somebody gave, in their own letters.
    named: bool = False


def field(name: str, title: str | None = None, **options: bool) -> Column:
    return Column(title or name.replace("_", " "), lambda item: text(item.get(name)), **options)


def text(value: object) -> str:
    if value is None or value == "" or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)


def is_terminal() -> bool:
    return sys.stdout.isatty()


def console() -> "Console":
    """In a pipe nothing is wrapped, and nothing cut but SQL: the reader is a program, or a file."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False, width=None if is_terminal() else 10_000)


def is_narrow() -> bool:
    return is_terminal() and console().width < WIDE


def rendered(shown: "RenderableType") -> str:
    """As text, without the spaces that fill a table's last column."""
    out = console()
    with out.capture() as captured:
        out.print(shown)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def write(shown: "RenderableType") -> None:
    if is_terminal():
        console().print(shown)
    else:
        sys.stdout.write(rendered(shown))


def show(items: Iterable[Item], columns: Sequence[Column], form: Form, *, name: str = "id", none: str) -> None:
    """A list. `none` is what a person reads when it is empty."""
    found = list(items)
    if form == "name":
        sys.stdout.writelines(f"{item[name]}\n" for item in found)
    elif form != "table":
        dump(found, form)
    elif not found:
        sys.stderr.write(f"{none}\n")
    else:
        write(table(found, columns))


def show_or_watch(
    fetch: Callable[[], Iterable[Item]],
    columns: Sequence[Column],
    form: Form,
    *,
    watch: bool,
    name: str = "id",
    none: str,
) -> int:
    """A list; with --watch again and again, as a table."""
    if watch:
        return repeatedly(lambda: table(items, columns) if (items := list(fetch())) else none)
    show(fetch(), columns, form, name=name, none=none)
    return 0


def show_one(item: Item, form: Form, *, name: str = "id", person: Callable[[Item], "RenderableType"]) -> None:
    if form == "name":
        sys.stdout.write(f"{item[name]}\n")
    elif form == "table":
        write(person(item))
    else:
        dump(item, form)


def dump(value: object, form: Form) -> None:
    if form == "yaml":
        import yaml

        sys.stdout.write(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
    else:
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def table(items: Sequence[Item], columns: Sequence[Column]) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column, width in zip(columns, _widths(items, columns), strict=True):
        shown.add_column(
            Text(column.title if column.named else column.title.upper()),
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=width,
            max_width=width,
        )
    for item in items:
        cells = [column.cell(item) for column in columns]
        shown.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in cells))
    return shown


def _widths(items: Sequence[Item], columns: Sequence[Column]) -> list[int]:
    """As wide as their content, but for the wide ones: they share what room is left."""
    from rich.cells import cell_len

    wanted = [max(cell_len(cell) for cell in (column.title, *map(column.cell, items))) for column in columns]
    fixed = sum(width + GAP for width, column in zip(wanted, columns, strict=True) if not column.wide)
    room = (console().width - fixed) // max(1, sum(column.wide for column in columns)) - GAP
    piped = not is_terminal()
    return [
        max(cell_len(column.title), min(width, room, (column.longest_in_pipe if piped else None) or room))
        if column.wide
        else width
        for width, column in zip(wanted, columns, strict=True)
    ]


def facts(pairs: Iterable[tuple[str, object]]) -> "RenderableType":
    """One thing, line by line; what is not known is left out."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    shown.add_column(style="dim", no_wrap=True)
    shown.add_column(overflow="fold")
    for title, value in pairs:
        if value is not None and value != "" and value != [] and value != {}:
            cell = text(value)
            shown.add_row(title, Text(cell, style=STYLES.get(cell, "")))
    return shown


def repeatedly(render: Callable[[], "RenderableType"]) -> int:
    """`--watch`: in place on a terminal; in a pipe, again whenever it is not the same. Until Ctrl-C."""
    from rich.live import Live

    if not is_terminal():
        return _repeatedly_plain(render)
    with Live(render(), console=console(), refresh_per_second=4, screen=False) as live:
        try:
            while True:
                time.sleep(WATCH_SECONDS)
                live.update(render())
        except KeyboardInterrupt:
            return 0


def _repeatedly_plain(render: Callable[[], "RenderableType"]) -> int:
    before = ""
    while True:
        now = rendered(render())
        if now != before:
            before = now
            sys.stdout.write(now)
            sys.stdout.flush()
        time.sleep(WATCH_SECONDS)
