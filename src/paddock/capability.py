"""What a capability declares about itself, once: `serve`, `worker`, the CLI, the dashboard, the settings and the
reference read it from here and name no capability themselves.

A declaration is light, and so is this module, which `paddock --help` reads. Whatever a process may not need stands in it as
"module:name" and is imported on first use: the help of the command line, a runner and an engine's child import no
capability's inside.

The built-in ones are listed in `BUILT_IN`; other packages name theirs in the entry-point group `paddock.capabilities`.
One that cannot be loaded takes nobody else with it: it is missing, and `broken()` says why. That holds for each part of
it too: whoever loads a part leaves the whole capability out when the part cannot be had, or has a name that is taken.
"""

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from paddock.entry_points import entry_points

if TYPE_CHECKING:
    from logging import Logger

GROUP = "paddock.capabilities"
# In `Capability.places`: the thing is named by its name, and not by a UUID.
BY_NAME = "{name}"
# What is nobody's capability; its migrations are recorded by this name.
CORE = "core"
# What tokens, the form that makes one, and bulk jobs have beside the grants: no grant may have such a name.
NOT_GRANTS = frozenset(
    (
        *("id", "name", "role", "owner", "kinds", "token", "expires", "expires_at", "csrf"),
        *("created_at", "created_by", "last_used_at", "revoked_at"),
        *("action", "filter", "until", "actor", "reason", "all", "no_parts_of"),
    )
)
BUILT_IN = (
    "paddock.exports.capability:EXPORTS",
    "paddock.instances.capability:INSTANCES",
    "paddock.maintenance.capability:MAINTENANCE",
    "paddock.ingest.capability:INGEST",
    "paddock.dumps.capability:DUMPS",
    "paddock.background.capability:BACKGROUND",
    "paddock.cluster.capability:CLUSTER",
)


class Command(NamedTuple):
    name: str
    target: str  # "module:name" of a function or of a cyclopts App
    help: str
    verbs: str = ""
    # It is also a command without a verb; how its arguments are called then.
    alone: str = ""


class NavigationEntry(NamedTuple):
    """A line of the dashboard's navigation. `key` is typed after `g` to go there, `icon` names a symbol of
    web/templates/parts/sprite.svg. Who may see it is who may open its path."""

    path: str
    name: str
    icon: str
    key: str


class Schedule(NamedTuple):
    """An internal schedule that each start of the control plane makes sure of."""

    name: str
    kind: str
    every: timedelta


class Grant(NamedTuple):
    """Names that a token may be given, like engines. It is declared once: tokens in the database, the API, the command line,
    the dashboard and bulk jobs have it by its `name`. `what` is the word that `Kind.uses` and refusals have for one."""

    name: str
    what: str
    title: str
    help: str


class Capability(NamedTuple):
    """All fields but the first three may be left out."""

    name: str
    title: str
    # The package whose folder holds the declaration; its `migrations`, `templates` and `static` belong to the capability.
    package: str
    # A subclass of `paddock.config.Settings`. Its fields are settings: `keep_days` of the capability `dumps` is
    # PADDOCK_DUMPS_KEEP_DAYS and `[dumps] keep_days`; read it with `config.of(Model)`.
    settings: str | None = None
    # `function(config)`: raises a `ConfigError` for tables that are wrong. A worker asks it at its start, its runners do not.
    check_settings: str | None = None
    # `function(config) -> Sequence[Kind]`: what workers run, loaded in each runner, and what only the control plane knows.
    kinds: str | None = None
    internal_kinds: str | None = None
    # `function() -> Mapping[type, factory]`: what handlers are given by the types of their parameters.
    resources: str | None = None
    # `function(config) -> set[str]`: kinds that this machine's worker cannot run, and so does not offer.
    unreachable_kinds: str | None = None
    # `function(core, config) -> AsyncContextManager`: entered when the control plane starts, before it answers, and left when
    # it stops. What it raises with a `code` is a sentence for whoever started it.
    alongside: str | None = None
    # `async function(config, link)`: what a worker does when it starts, and every hour.
    worker_chore: str | None = None
    # APIRouters, in the order they are tried.
    routers: Sequence[str] = ()
    # `function() -> Sequence[Route]` below /internal, for what runs elsewhere and must reach the control plane; each checks who
    # asks. They are where the workers' API is.
    internal_routes: str | None = None
    # Modules with `routes()`, in the order they are tried. `templates` and `static` of the folder of the declaration are
    # found by the dashboard.
    pages: Sequence[str] = ()
    navigation: Sequence[NavigationEntry] = ()
    commands: Sequence[Command] = ()
    schedules: Sequence[Schedule] = ()
    # `async function(core)`: sets the gauges that the database tells; run every 10 s by each replica.
    gauges: str | None = None
    # `async function(db) -> Mapping[str, Any]`: what `GET /api/ops/state` says about it.
    state: str | None = None
    # `async function(db) -> Sequence[Clause]`: what the overview's sentence says about it; nothing when all is well.
    alarms: str | None = None
    grants: Sequence[Grant] = ()
    # `async function(db, drafts) -> set[str]`: which of these folders of the managed store it still needs. A draft that no
    # capability needs is removed after a while.
    kept_drafts: str | None = None
    # `function(config, caller) -> Mapping[grant, Iterable[str]]`: what a caller may use besides what their token says.
    granted: str | None = None
    # Kinds that begin with this carry the name of a configured thing, which not everybody may learn: `function(config,
    # caller, kind) -> bool` says who may.
    naming_kinds: str | Sequence[str] | None = None
    may_see_kind: str | None = None
    # Labels of its metrics that hold such names. `/metrics` shows no series with one of them to just anybody.
    naming_labels: Sequence[str] = ()
    # `function(config) -> Mapping[whole, ApiError]`: wholes (`Kind.part_of`) whose jobs people do not cancel or retry singly.
    closed_wholes: str | None = None
    # `async function(plane, caller, job) -> Sequence[Purpose]`: what a job makes, or takes away.
    made_for: str | None = None
    # `async function(plane, caller, sought) -> Sequence[Found]`: its things by their name or id, for the search, Ctrl-K and
    # `paddock why`; paddock.api.finding says more.
    finder: str | None = None
    # What a schedule of one of its things would run: {"export": "module:function"}, for the button on the page of such a thing.
    # `async function(plane, caller, id) -> Planned` (paddock.web.planning) refuses what the page would.
    schedulable: Mapping[str, str] = MappingProxyType({})
    # Where the pages of its things are: {"snapshot": "/snapshots/{}"} makes a link of "snapshot:<id>" in an event and of a
    # field `snapshot_id`; with `BY_NAME` in place of {} the thing is named by its name, and a path without either shows all.
    places: Mapping[str, str] = MappingProxyType({})
    # `async function(plane, caller, job) -> Sequence[Around]`: what `paddock why` says besides, of the whole that a job is
    # part of. It says nothing of what the caller may not see.
    around: str | None = None
    # How the audit page says what people did: for each action a verb and what it was done to.
    audit: Mapping[str, tuple[str, str]] = MappingProxyType({})
    # `paddock doctor` runs them by name: `function(core, config) -> AsyncIterator[Finding]`.
    checks: Mapping[str, str] = MappingProxyType({})
    # Paths below this have clients that were written for another server: an error is a sentence there, and pages of the
    # origins that `function(config) -> Iterable[str]` names may ask.
    foreign_paths: str | None = None
    cors_origins: str | None = None


def _log() -> "Logger":
    from logging import getLogger

    return getLogger(__name__)


def load(target: str) -> Any:
    """What "module:name" names."""
    module, _, name = target.partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, name) if name else loaded


@cache
def _loaded() -> tuple[dict[str, Capability], dict[str, str]]:
    found: dict[str, Capability] = {}
    broken: dict[str, str] = {}
    for target in BUILT_IN:
        capability = load(target)
        found[capability.name] = capability
    for point in entry_points(group=GROUP):
        try:
            capability = point.load()
            if not isinstance(capability, Capability):
                raise TypeError(f"it is {capability!r}, which is not a Capability")
            if capability.name in found or capability.name == CORE:
                raise ValueError(f"there is a capability '{capability.name}' already")
            _check_grants(capability, found.values())
            found[capability.name] = capability
        except (Exception, SystemExit) as problem:  # whatever a stranger's module raises when it is imported
            broken[point.name] = f"{type(problem).__name__}: {problem}"
            _log().error("The capability of the entry point '%s' is missing: %s", point.name, broken[point.name])
    return found, broken


def _check_grants(capability: Capability, others: Iterable[Capability]) -> None:
    """A grant that stands for another's, or for a field of tokens, would give what nobody meant to give."""
    theirs = [grant for other in others for grant in other.grants]
    taken = {grant.name for grant in theirs} | NOT_GRANTS
    words = {grant.what for grant in theirs}
    for grant in capability.grants:
        if (
            grant.name in taken
            or grant.what in words
            or not (
                grant.name.isidentifier()
                and grant.name.isascii()
                and grant.name == grant.name.lower()
                and grant.name[0] != "_"
            )
        ):
            raise ValueError(f"its grant '{grant.name}' ({grant.what}) needs another name")
        taken.add(grant.name)
        words.add(grant.what)


def capabilities() -> tuple[Capability, ...]:
    """All there are, the built-in ones first."""
    return tuple(_loaded()[0].values())


def grants() -> tuple[Grant, ...]:
    """All that tokens may be given, in the order of the capabilities."""
    return tuple(grant for capability in capabilities() for grant in capability.grants)


def broken() -> dict[str, str]:
    """Entry points whose capability is missing, and capabilities that were left out, and why."""
    return _loaded()[1]


def routers() -> list[Any]:
    """Each capability's part of the public API."""
    return [router for _, router in each("routers")]


def leave_out(capability: Capability, problem: BaseException) -> None:
    """A capability of which a part cannot be had is missing from here on. One of our own is never left out."""
    if any(target.startswith(f"{capability.package}.") for target in BUILT_IN):
        raise problem
    found, broken = _loaded()
    found.pop(capability.name, None)
    broken[capability.name] = f"{type(problem).__name__}: {problem}"
    _log().error("The capability '%s' is left out: %s", capability.name, broken[capability.name])


@contextmanager
def leaving_out(capability: Capability) -> Iterator[None]:
    """Whatever is raised within leaves this capability out."""
    try:
        yield
    except (Exception, SystemExit) as problem:  # whatever a stranger's module raises when it is imported or called
        leave_out(capability, problem)


def each(field: str) -> Iterator[tuple[Capability, Any]]:
    """Those that declare this, with what the name in it leads to; of several names, with each. One whose name leads nowhere
    is left out."""
    for capability in capabilities():
        declared = getattr(capability, field)
        targets = [declared] if isinstance(declared, str) else [*(declared or ())]
        loaded: list[Any] = []
        with leaving_out(capability):
            loaded += [load(target) for target in targets]
        if len(loaded) == len(targets):
            yield from ((capability, one) for one in loaded)
