from cyclopts import App

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.output import Output, field, show

app = App(name="guestbook", help="Who signed which book.")
COLUMNS = (field("book"), field("guest"), field("signed_at"))


@app.command(name="list")
def list_guests(*, output: Output = "table", connect: Connect = HERE) -> int:
    """List who signed, newest first."""
    found = list(open_server(connect).pages("/api/guestbook", None))
    show(found, COLUMNS, output, name="guest", none="Nobody signed yet.")
    return 0
