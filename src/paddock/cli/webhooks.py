"""`paddock webhooks`: who is told of events."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import App, Parameter

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.output import Column, Output, field, show, show_one
from paddock.cli.wording import ago

app = App(name="webhooks", help="Who is told of events.")


@app.command(name="list")
def list_webhooks(*, output: Output = "table", connect: Connect = HERE) -> int:
    """List the subscriptions."""
    show(open_server(connect).pages("/api/webhooks", None), COLUMNS, output, none="No webhooks.")
    return 0


@app.command
def create(
    url: str,
    /,
    *,
    type: Annotated[list[str], Parameter(negative=())],
    all_owners: Annotated[bool, Parameter(negative=())] = False,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Subscribe an address. The secret that signs its deliveries is printed now and never again.

    Parameters
    ----------
    url:
        Where to deliver.
    type:
        Event type, like job.failed or job.*; repeat the option for several.
    all_owners:
        Everybody's events, not only yours (ops).
    """
    body: dict[str, Any] = {"url": url, "types": type}
    if all_owners:
        body["all_owners"] = True
    made = open_server(connect).post("/api/webhooks", body)
    if output in ("json", "yaml", "name"):
        show_one(made, output, person=str)
        return 0
    sys.stdout.write(f"{made['id']}\n")
    if made.get("secret"):
        sys.stdout.write(f"{made['secret']}\n")
        sys.stderr.write("The second line signs its deliveries (HMAC-SHA256). Keep it: it is not shown again.\n")
    return 0


@app.command
def delete(webhook: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Delete a subscription.

    Parameters
    ----------
    webhook:
        Its id.
    """
    open_server(connect).delete(f"/api/webhooks/{webhook}")
    show_one({"id": webhook, "deleted": True}, output, person=lambda _: f"{webhook} is deleted.")
    return 0


@app.command(name="test")
def try_out(webhook: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Deliver a test event to a subscription.

    Parameters
    ----------
    webhook:
        Its id.
    """
    told = open_server(connect).make_work(f"/api/webhooks/{webhook}/test", {})
    name = "job_id" if isinstance(told, dict) and "job_id" in told else "id"
    show_one(
        told, output, name=name, person=lambda made: f"Delivery {made.get(name)}: `paddock jobs watch` follows it."
    )
    return 0


COLUMNS: Sequence[Column] = (
    field("id"),
    field("url", wide=True),
    field("types"),
    field("owner"),
    field("active"),
    Column("made", lambda webhook: ago(webhook.get("created_at"))),
)
