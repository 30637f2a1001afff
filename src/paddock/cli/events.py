"""`paddock events`: facts, and who was told of them."""

from collections.abc import Sequence

from cyclopts import App

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.output import Column, Output, field, show
from paddock.cli.wording import clock_time

app = App(name="events", help="What happened, and who received it.")


@app.command(name="list")
def list_events(
    *,
    type: str | None = None,
    subject: str | None = None,
    limit: int = 50,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """List events, newest first.

    Parameters
    ----------
    type:
        Of this type only, like job.completed.
    subject:
        About this job or other thing.
    limit:
        How many at most.
    """
    found = open_server(connect).pages("/api/events", limit, type=type, subject=subject)
    show(found, COLUMNS, output, none="No events. They are recorded once somebody listens: `paddock webhooks create`.")
    return 0


@app.command
def types(*, output: Output = "table", connect: Connect = HERE) -> int:
    """List the types of events there are. A webhook may also name a family, like job.*, or all: *."""
    show(open_server(connect).get("/api/events/types"), TYPES, output, name="type", none="There are no types.")
    return 0


@app.command
def deliveries(event: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """List the deliveries of an event.

    Parameters
    ----------
    event:
        Its id.
    """
    found = open_server(connect).pages(f"/api/events/{event}/deliveries", None)
    show(found, DELIVERIES, output, name="job_id", none="No deliveries: nobody subscribed to it.")
    return 0


@app.command
def redeliver(
    event: str,
    *,
    webhook: str | None = None,
    kind: str | None = None,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Deliver an event again to its webhooks and to the kinds that hear it, whether they were reached or not.

    Parameters
    ----------
    event:
        Its id.
    webhook:
        Only to this webhook.
    kind:
        Only to this kind.
    """
    body = {name: value for name, value in (("webhook_id", webhook), ("kind", kind)) if value is not None}
    made = open_server(connect).make_work(f"/api/events/{event}/redeliver", body)
    show(
        made,
        REDELIVERIES,
        output,
        none="Nobody subscribes to it: `paddock webhooks list` shows who subscribes to what.",
    )
    return 0


COLUMNS: Sequence[Column] = (
    field("id"),
    Column("at", lambda event: clock_time(event.get("at"))),
    field("type"),
    field("subject"),
    field("owner"),
    field("data", wide=True),
)
TYPES: Sequence[Column] = (field("type"), field("says"))
REDELIVERIES: Sequence[Column] = (field("id", "job"), field("status"))
DELIVERIES: Sequence[Column] = (
    field("webhook_id", "webhook"),
    field("kind"),
    field("job_id", "job"),
    field("status"),
)
