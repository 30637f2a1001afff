"""A kind says everything about itself in one place; the registry holds all that this process knows.

Both sides load the same declarations: the control plane for validation, policy and hooks, the worker for handlers.
Other packages add theirs through the entry-point group `paddock.kinds`; each entry point names a `Kind`
or an iterable of them.
"""

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from paddock.entry_points import entry_points

if TYPE_CHECKING:
    from paddock.db.pool import Database, Transaction
    from paddock.jobs.model import Event, Group, Job, NewEvent, NewJob, Ordered

    # What a hook may return: jobs and events to make in its transaction.
    Made = Sequence[NewJob | NewEvent] | None
    # Makes the delivery of an event to a kind that hears it.
    Hearing = Callable[[Transaction, Event], Awaitable[NewJob | None]]

log = logging.getLogger(__name__)
KIND_NAME = re.compile(r"(?=.{1,100}\Z)[a-z][a-z0-9_]*(:[a-z0-9_.-]+)?\Z")


@dataclass(frozen=True, slots=True)
class Backoff:
    """How failures are retried. A limit is how many are forgiven since the last saved progress: one more ends the job."""

    first: timedelta = timedelta(seconds=60)
    cap: timedelta = timedelta(minutes=5)
    limit: int = 5
    cluster_limit: int = 50
    loss_limit: int = 5


@dataclass(frozen=True, slots=True)
class Shares:
    """How many of one worker's slots the jobs of one owner, and the jobs of one key, may have at once: whoever waits
    for something slow makes nobody else wait. `key(payload)` says what a job waits for, like the host it sends to."""

    key: Callable[[Any], str]
    of_owner: int
    of_key: int


@dataclass(frozen=True, slots=True)
class Trigger:
    """How an operator runs a kind that its schedule does not run for them, because that would pass over what is asked of
    them: its page in the dashboard, and the command."""

    page: str
    command: str


class Nothing(BaseModel):
    """The payload of a kind that takes none."""


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
    # What one owner and one key may have of a worker's slots; None: whatever they come first for.
    shares: Shares | None = None
    # Rescued only this much later than its session died.
    patience: timedelta = timedelta(0)
    may_repeat: bool = True
    # At most one of it is claimed anywhere.
    serial: bool = False
    # Effects outside the fence (table commits, hooks): the worker stops it one beat before its lease would end.
    effects_outside_fence: bool = False
    # What its handlers may return with `done`: the kinds of follow-up jobs and the types of events. Whatever else a worker
    # sends with a finish fails the job, and so does an internal kind, declared or not: a worker's token is for its kinds.
    follow_ups: frozenset[str] = frozenset()
    emits: frozenset[str] = frozenset()
    # Runs inside `paddock serve`, which has the database.
    internal: bool = False
    # The control plane's own upkeep: out of default lists, figures and backlog, kept for its last 200 runs only.
    housekeeping: bool = False
    lock_key: Callable[[Any], str | None] | None = None
    # What a payload names that its submitter's token must allow: ("engine", name), ("destination", name),
    # ("engine role", name), ("database", name).
    uses: Callable[[Any], Sequence[tuple[str, str]]] | None = None
    # What a job is about, like its query or its table: a field of the payload, or a function of it. One line of at most 200
    # characters is kept, without secrets; lists show it, and free text finds it.
    about: str | Callable[[Any], str | None] | None = None
    # What a job with this payload is one part of, like "snapshot". An installation may leave the parts to operators.
    part_of: Callable[[Mapping[str, Any]], str | None] | None = None
    # Run by the control plane before a schedule of it is made or changed: `check(core, config, payload, owner)` raises
    # `Refused` for what no run could do. It may ask a worker, and so take some seconds.
    check: Hook | None = None
    # Whether somebody may have this payload run, asked of what their token says: `allowed(core, config, caller, payload)` raises
    # what a request for the same would be refused with. A kind that has it may be scheduled by analysts too; its handler asks
    # again at each run, by `paddock.api.services.rights`.
    allowed: Hook | None = None
    # What a job of it only orders, like "export". Its result then names the job that does the work under "job", and the
    # thing itself under this name; a schedule shows what became of that.
    orders: str | None = None
    # A run by hand begins there and nowhere else: its schedule can only be switched off and on, and its jobs are not retried.
    trigger: Trigger | None = None
    # For what it orders and no single job does, like "run": `outcomes(db, ids)` says what became of the things with these
    # ids. Whatever is missing from its answer is no longer kept.
    outcomes: "Callable[[Database, Sequence[str]], Awaitable[Mapping[str, Ordered]]] | None" = None
    # The parts of saved state a person may see.
    public_saved: tuple[str, ...] = ()
    # Names -> values of the secrets the payload names, resolved into the claim's answer: secrets(tx, payload).
    secrets: Callable[["Transaction", Any], Awaitable[Mapping[str, str]]] | None = None
    # Run by the control plane inside the transaction that ends a job or brings a sealed group to 0. Jobs and events that
    # they return are made in it too; the events belong to the owner of the job or group. What they count with `tx.count`
    # and `tx.observe` is counted after the commit.
    on_end: Callable[["Transaction", "Job"], Awaitable["Made"]] | None = None
    # The same for the end of a cleanup, however it ends. Its lock is free by then: what comes next may take it.
    on_cleanup_end: Callable[["Transaction", "Job"], Awaitable["Made"]] | None = None
    on_group_end: Callable[["Transaction", "Group"], Awaitable["Made"]] | None = None
    # Called after a worker of it died or would not stop, with the reason that `paddock_rescued_total` has: to count.
    on_rescued: Callable[[str], None] | None = None
    # Event types that these hooks make, each with what it says in words.
    end_events: Mapping[str, str] = field(default_factory=dict)
    # The event types that this kind subscribes to. `make(tx, event)` gives the delivery, a job of this kind, or None; it is
    # run by the control plane in the transaction that records the event. One that raises is logged and makes no delivery:
    # what happened has happened, whoever listens.
    hears: Mapping[str, "Hearing"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not KIND_NAME.match(self.name):
            raise ValueError(
                f"Kind name {self.name!r} must be lower case words, like 'export' or 'dump:shop', in 100 characters."
            )
        if isinstance(self.about, str) and self.about not in self.payload.model_fields:
            raise ValueError(f"Kind '{self.name}' is about '{self.about}', which is no field of its payload.")
        if self.shares is not None and (self.cleanup is not None or self.serial):
            raise ValueError(f"Kind '{self.name}' has shares of slots: it can have no cleanup and cannot be serial.")

    @property
    def blocking(self) -> bool:
        return not inspect.iscoroutinefunction(self.handler)


def housekeeping(name: str, handler: Callable[..., Any], turn_timeout: timedelta) -> Kind:
    """A pass of the control plane's own upkeep, which a schedule begins: one at a time, and it takes no payload."""
    return Kind(
        name=name,
        payload=Nothing,
        handler=handler,
        internal=True,
        housekeeping=True,
        serial=True,
        turn_timeout=turn_timeout,
    )


def removal(name: str, payload: type[BaseModel], handler: Callable[..., Any], *, about: str | None = None) -> Kind:
    """Removes the files of something that was deleted, and its row last. It is tried for hours: nobody else would do it."""
    return Kind(
        name=name,
        payload=payload,
        handler=handler,
        about=about,
        internal=True,
        retry=Backoff(first=timedelta(seconds=10), cap=timedelta(minutes=10), limit=50),
    )


class Kinds:
    """All kinds this process knows, by name."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self._by_name: dict[str, Kind] = {}
        self._hearing: dict[str, list[Kind]] = {}
        # Entry points whose kinds are missing, and why.
        self.broken: dict[str, str] = {}
        self.extend(kinds)

    def add(self, kind: Kind) -> None:
        self.extend([kind])

    def extend(self, kinds: Iterable[Kind]) -> None:
        """All of them or none."""
        new: dict[str, Kind] = {}
        for kind in kinds:
            known = new.get(kind.name) or self._by_name.get(kind.name)
            if known is not None and known is not kind:
                raise ValueError(f"Kind '{kind.name}' is declared twice; rename one of them.")
            new[kind.name] = kind
        for name, kind in new.items():
            if name not in self._by_name:
                self._by_name[name] = kind
                for type in kind.hears:
                    self._hearing.setdefault(type, []).append(kind)

    def __getitem__(self, name: str) -> Kind:
        return self._by_name[name]

    def get(self, name: str) -> Kind | None:
        return self._by_name.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def hearing(self, event_type: str) -> Sequence[Kind]:
        """Those that subscribe to events of this type."""
        return self._hearing.get(event_type, ())

    def part_of(self, job: "Job") -> str | None:
        kind = self.get(job.kind)
        return None if kind is None or kind.part_of is None else kind.part_of(job.payload)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)


def add_entry_points(kinds: Kinds) -> None:
    """Adds what other packages bring. One that cannot be imported takes nobody else's work with it: its kinds are missing,
    and `kinds.broken` says why."""
    for point in entry_points(group="paddock.kinds"):
        try:
            kinds.extend(_kinds_of(point))
        except (Exception, SystemExit) as problem:  # whatever a stranger's module raises when it is imported
            kinds.broken[point.name] = f"{type(problem).__name__}: {problem}"
            # Not structlog: runners load this, and it would be half of the time that they need to start.
            log.error("The kinds of the entry point '%s' are missing: %s", point.name, kinds.broken[point.name])


def _kinds_of(point: EntryPoint) -> list[Kind]:
    loaded = point.load()
    found = [loaded] if isinstance(loaded, Kind) else list(loaded)
    for kind in found:
        if not isinstance(kind, Kind):
            raise TypeError(f"Entry point '{point.name}' of paddock.kinds gave {kind!r}, which is not a Kind.")
    return found
