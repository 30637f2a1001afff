"""`paddock audit`: who changed what."""

from collections.abc import Sequence

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.jobs.naming import SHORT_ID, WHOLE_ID
from paddock.cli.output import Column, Item, Output, field, is_narrow, show, text
from paddock.cli.wording import clock_time, point_in_time


def audit(
    *,
    actor: str | None = None,
    action: str | None = None,
    subject: str | None = None,
    since: str | None = None,
    limit: int = 50,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """List what people changed, newest first: cancels, retries, pauses, drains, schedules, tokens, settings.

    Parameters
    ----------
    actor:
        By this person or program.
    action:
        Only this, like cancel, drain_on or token_created.
    subject:
        Done to this, like job:ID, kind:NAME or schedule:NAME.
    since:
        After this time (UTC by default), or within this long: 2026-11-15T09:00, 2h, 7d.
    limit:
        How many at most.
    """
    after = None if since is None else point_in_time(since)
    found = open_server(connect).pages("/api/audit", limit, actor=actor, action=action, subject=subject, since=after)
    show(found, COLUMNS, output, none="Nothing was changed, or nothing matches.")
    return 0


def shown_subject(entry: Item) -> str:
    """On a narrow terminal without the end of an id."""
    what, _, which = str(entry["subject"]).partition(":")
    return f"{what}:{which[:SHORT_ID]}" if is_narrow() and len(which) == WHOLE_ID else str(entry["subject"])


def why(entry: Item) -> str:
    told = [str(entry["reason"])] if entry.get("reason") else []
    return "; ".join(told + [f"{name} {text(value)}" for name, value in entry["details"].items()]) or "-"


COLUMNS: Sequence[Column] = (
    Column("at", lambda entry: clock_time(entry.get("at"))),
    field("actor", "by"),
    field("action"),
    Column("subject", shown_subject),
    Column("why", why, wide=True),
)
