"""`paddock config`: the effective settings, and where each came from."""

from collections.abc import Sequence
from pathlib import Path

from cyclopts import App

from paddock.cli.output import Column, Output, field, show

app = App(name="config", help="The effective settings and their sources.")


@app.command(name="show")
def show_config(*, data: Path | None = None, output: Output = "table") -> int:
    """Print the settings a process started here would have; secrets are masked.

    Parameters
    ----------
    data:
        Data folder, as for `paddock up`.
    """
    from paddock.config import load

    explained = load(overrides={"data": data}).explain()
    rows = [{"name": item.name, "value": item.shown, "source": item.source} for item in explained]
    show(rows, COLUMNS, output, name="name", none="No settings.")
    return 0


COLUMNS: Sequence[Column] = (field("name", "setting"), field("value", wide=True), field("source", "from"))
