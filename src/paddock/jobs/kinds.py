"""A kind says everything about itself in one place; the registry holds all that this process knows.

Both sides load the same declarations: the control plane for validation, policy and hooks, the worker for handlers.
Other packages add theirs through the entry-point group `paddock.kinds`; each entry point names a `Kind`
or an iterable of them.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from paddock.db.pool import Transaction
    from paddock.jobs.model import Group, Job, NewEvent, NewJob

KIND_NAME = re.compile(r"(?=.{1,100}\Z)[a-z][a-z0-9_]*(:[a-z0-9_.-]+)?\Z")


@dataclass(frozen=True, slots=True)
class Backoff:
    """How failures are retried. A limit is how many are forgiven since the last saved progress: one more ends the job."""

    first: timedelta = timedelta(seconds=60)
    cap: timedelta = timedelta(minutes=5)
    limit: int = 5
    cluster_limit: int = 50
    loss_limit: int = 5


Hook = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """`handler(turn, ...)` and `cleanup(turn, ...)` get a `Turn`; further parameters are resources of the worker,
    found by their annotated type. A plain function is a blocking handler and runs in a child process of its own."""

    name: str
    payload: type[BaseModel]
    handler: Callable[..., Any]
    cleanup: Callable[..., Any] | None = None
    # Roles that may submit it over the API; None: internal, only code makes one.
    submit: frozenset[str] | None = None
    retry: Backoff = field(default_factory=Backoff)
    # An unclassified exception is transient up to three times; False makes it permanent at once.
    retry_unclassified: bool = True
    turn_timeout: timedelta | None = None
    total_timeout: timedelta | None = None
    stall_timeout: timedelta | None = None
    # A stall ends the job with this sentence; None: it is a failure like any other, and tried again.
    stall_fails: str | None = None
    grace: timedelta = timedelta(seconds=2)
    # At SIGTERM, after the grace: fail with `Worker received SIGTERM` instead of giving the job back.
    fail_on_shutdown: bool = False
    # How many of it one worker runs at once; None: as many as the worker has slots.
    concurrency: int | None = None
    # Rescued only this much later than its session died.
    patience: timedelta = timedelta(0)
    may_repeat: bool = True
    # At most one of it is claimed anywhere.
    serial: bool = False
    # Effects outside the fence (table commits, hooks): the worker stops it one beat before its lease would end.
    effects_outside_fence: bool = False
    # Runs inside `paddock serve`, which has the database.
    internal: bool = False
    # The control plane's own upkeep: out of default lists, figures and backlog, kept for its last 200 runs only.
    housekeeping: bool = False
    lock_key: Callable[[Any], str | None] | None = None
    # What a payload names that its submitter's token must allow: ("engine", name), ("destination", name),
    # ("engine role", name), ("database", name).
    uses: Callable[[Any], Sequence[tuple[str, str]]] | None = None
    # What a job with this payload is one part of, like "snapshot". An installation may leave the parts to operators.
    part_of: Callable[[Mapping[str, Any]], str | None] | None = None
    # The parts of saved state a person may see.
    public_saved: tuple[str, ...] = ()
    # Names -> values of the secrets the payload names, resolved into the claim's answer: secrets(tx, payload).
    secrets: Callable[["Transaction", Any], Awaitable[Mapping[str, str]]] | None = None
    # Run by the control plane inside the transaction that ends a job or brings a sealed group to 0. Jobs and events that
    # `on_end` returns are made in it too; the events belong to the job's owner.
    on_end: Callable[["Transaction", "Job"], Awaitable[Sequence["NewJob | NewEvent"] | None]] | None = None
    on_group_end: Callable[["Transaction", "Group"], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        if not KIND_NAME.match(self.name):
            raise ValueError(
                f"Kind name {self.name!r} must be lower case words, like 'export' or 'dump:shop', in 100 characters."
            )

    @property
    def blocking(self) -> bool:
        return not inspect.iscoroutinefunction(self.handler)


class Kinds:
    """All kinds this process knows, by name."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self._by_name: dict[str, Kind] = {}
        for kind in kinds:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        if kind.name in self._by_name and self._by_name[kind.name] is not kind:
            raise ValueError(f"Kind '{kind.name}' is declared twice; rename one of them.")
        self._by_name[kind.name] = kind

    def __getitem__(self, name: str) -> Kind:
        return self._by_name[name]

    def get(self, name: str) -> Kind | None:
        return self._by_name.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def part_of(self, job: "Job") -> str | None:
        kind = self.get(job.kind)
        return None if kind is None or kind.part_of is None else kind.part_of(job.payload)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)


def load_entry_points() -> Iterator[Kind]:
    for point in entry_points(group="paddock.kinds"):
        loaded = point.load()
        found = [loaded] if isinstance(loaded, Kind) else list(loaded)
        for kind in found:
            if not isinstance(kind, Kind):
                raise TypeError(f"Entry point '{point.name}' of paddock.kinds gave {kind!r}, which is not a Kind.")
            yield kind
