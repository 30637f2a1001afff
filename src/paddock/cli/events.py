"""`paddock events`: facts, and who was told of them."""

from collections.abc import Sequence

from cyclopts import App

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.output import Column, Output, field, show
from paddock.cli.wording import clock_time

app = App(name="events", help="Facts, and who was told.")


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
def deliveries(event: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """List who was told of an event, and how that went.

    Parameters
    ----------
    event:
        Its id.
    """
    found = open_server(connect).pages(f"/api/events/{event}/deliveries", None)
    show(found, DELIVERIES, output, name="job_id", none="Nobody was to be told.")
    return 0


@app.command
def redeliver(event: str, *, webhook: str | None = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Tell the webhooks of an event again, whether they were reached or not.

    Parameters
    ----------
    event:
        Its id.
    webhook:
        Tell only this one.
    """
    body = {} if webhook is None else {"webhook_id": webhook}
    made = open_server(connect).make_work(f"/api/events/{event}/redeliver", body)
    show(made, REDELIVERIES, output, none="Nobody listens to it: `paddock webhooks list` has those who do.")
    return 0


COLUMNS: Sequence[Column] = (
    field("id"),
    Column("at", lambda event: clock_time(event.get("at"))),
    field("type"),
    field("subject"),
    field("owner"),
    field("data", wide=True),
)
REDELIVERIES: Sequence[Column] = (field("id", "job"), field("status"))
DELIVERIES: Sequence[Column] = (field("webhook_id", "webhook"), field("job_id", "job"), field("status"))
