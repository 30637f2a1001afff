"""Which jobs are meant: the same options for listing, cancelling and retrying."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated
from uuid import UUID

from cyclopts import Group, Parameter

from paddock.cli.wording import clock_time, point_in_time

FILTER_OPTIONS = Group("Filter", sort_key=5)


@Parameter(name="*", group=FILTER_OPTIONS)
@dataclass(frozen=True)
class Which:
    """Every option narrows."""

    kind: Annotated[str | None, Parameter(help="Of this kind only.")] = None
    status: Annotated[
        str | None,
        Parameter(help="pending, claimed, submitted, completed, failed or cancelled; several with commas."),
    ] = None
    owner: Annotated[str | None, Parameter(help="Asked for by this owner.")] = None
    group: Annotated[UUID | None, Parameter(help="Of this group.")] = None
    worker: Annotated[str | None, Parameter(help="Held, or last held, by this worker.")] = None
    tag: Annotated[str | None, Parameter(help="With this tag.")] = None
    schedule: Annotated[str | None, Parameter(help="Created by this schedule.")] = None
    error_code: Annotated[str | None, Parameter(help="With this error.")] = None
    retrying: Annotated[
        bool, Parameter(negative=(), help="Failed, or lost their worker, and wait for the next try.")
    ] = False
    since: Annotated[
        str | None,
        Parameter(help="Created after this time (UTC by default), or within this long: 2026-11-15T09:00, 2h, 7d."),
    ] = None
    until: Annotated[str | None, Parameter(help="Created before this time, or longer ago than this.")] = None
    q: Annotated[str | None, Parameter(help="Beginning of the id, or text in what it is about or in its error.")] = None

    def as_parameters(self) -> dict[str, str]:
        """What was given, as the API takes it. Ask once: how long ago something was depends on when."""
        given = {name: str(value) for name, value in asdict(self).items() if value not in (None, False)}
        given |= {"retrying": "true"} if self.retrying else {}
        return given | {name: point_in_time(given[name]) for name in ("since", "until") if name in given}


ANY = Which()


def in_words(asked: Mapping[str, str]) -> str:
    """`kind probe, since 2026-11-15 09:00:00`."""
    told = {name: clock_time(value) if name in ("since", "until") else value for name, value in asked.items()}
    texts = {name: f"{name.replace('_', ' ')} {value}" for name, value in told.items()}
    return ", ".join("waiting to retry" if name == "retrying" else text for name, text in texts.items())
