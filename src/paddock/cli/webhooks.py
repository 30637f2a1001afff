"""`paddock webhooks`: who is told of events."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

from cyclopts import App, Parameter

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.output import Column, Item, Output, field, show, show_one
from paddock.cli.wording import ago

app = App(name="webhooks", help="Who receives events.")


@app.command(name="list")
def list_webhooks(
    *,
    q: str | None = None,
    active: bool | None = None,
    owner: str | None = None,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """List the subscriptions.

    Parameters
    ----------
    q:
        A part of the address or of an event type.
    active:
        Only those that are on; with --no-active only those that are off.
    owner:
        Only theirs.
    """
    wanted = None if active is None else str(active).lower()
    found = open_server(connect).pages("/api/webhooks", None, q=q, active=wanted, owner=owner)
    show(found, COLUMNS, output, none="No webhooks.")
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
        Event type, like job.failed or job.*; repeat the option for several. `paddock events types` lists them.
    all_owners:
        Everybody's events, not only yours (ops).
    """
    body: dict[str, Any] = {"url": url, "types": type}
    if all_owners:
        body["all_owners"] = True
    made = open_server(connect).make_work("/api/webhooks", body)
    if output in ("json", "yaml", "name"):
        show_one(made, output, person=str)
        return 0
    sys.stdout.write(f"{made['id']}\n")
    if made.get("secret"):
        sys.stdout.write(f"{made['secret']}\n")
        sys.stderr.write("The second line signs its deliveries (HMAC-SHA256). Keep it: it is not shown again.\n")
    return 0


@app.command(name="show")
def show_webhook(webhook: str, /, *, limit: int = 10, output: Output = "table", connect: Connect = HERE) -> int:
    """Show a subscription and what its receiver last answered.

    Parameters
    ----------
    webhook:
        Its id.
    limit:
        How many deliveries at most.
    """
    server = open_server(connect)
    found = server.get(f"/api/webhooks/{webhook}")
    told = list(server.pages(f"/api/webhooks/{webhook}/deliveries", limit))
    if output == "table":
        show([found], COLUMNS, output, none="No webhook.")
        show(told, DELIVERIES, output, none="Nothing was delivered yet.")
    else:
        show_one({**found, "deliveries": told}, output, person=str)
    return 0


@app.command
def edit(
    webhook: str,
    /,
    *,
    url: str | None = None,
    type: Annotated[list[str] | None, Parameter(negative=())] = None,
    active: bool | None = None,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Change a subscription; what is not named stays, and so does its secret.

    Parameters
    ----------
    webhook:
        Its id.
    url:
        Where to deliver from now on, also what waits.
    type:
        The event types in place of those it has; repeat the option for several.
    active:
        Switch it on again, or off with --no-active.
    """
    asked = {"url": url, "types": type, "active": active}
    body = {name: value for name, value in asked.items() if value is not None}
    changed = open_server(connect).patch(f"/api/webhooks/{webhook}", body)
    show_one(changed, output, person=lambda one: f"{one['id']} is changed.")
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
def try_out(webhook: str, *, type: str | None = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Deliver a test event to a subscription, or a sample of a type.

    Parameters
    ----------
    webhook:
        Its id.
    type:
        An event type, like job.failed: its receiver gets what such an event says, with "sample": true.
    """
    query = "" if type is None else f"?{urlencode({'type': type})}"
    told = open_server(connect).make_work(f"/api/webhooks/{webhook}/test{query}", {})
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
    Column("created", lambda webhook: ago(webhook.get("created_at"))),
)


def _answered(delivery: Item) -> str:
    for name in ("skipped", "error_message", "answered"):
        if delivery[name] is not None:
            return str(delivery[name])
    return "-"


DELIVERIES: Sequence[Column] = (
    Column("event", lambda delivery: delivery["type"] or "no longer kept"),
    Column("status", lambda delivery: delivery["status"] or "not kept"),
    Column("tries", lambda delivery: "-" if delivery["attempts"] is None else str(delivery["attempts"]), right=True),
    Column("created", lambda delivery: ago(delivery["created_at"])),
    Column("answer", _answered, wide=True),
)
