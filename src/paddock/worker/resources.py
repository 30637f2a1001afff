"""What handlers need besides their turn, found by type: engines, stores, clients.

In the control plane they are given ready-made. A runner builds each on first use from a factory without arguments;
other packages add factories through the entry-point group `paddock.resources`, each entry a mapping of type to factory.
"""

import inspect
import logging
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from paddock.entry_points import entry_points
from paddock.jobs import wire
from paddock.jobs.errors import TransientResourceError
from paddock.jobs.kinds import Kind

log = logging.getLogger(__name__)
Factory = Callable[[], object]
Factories = Mapping[type, Factory]


class Resources:
    def __init__(self, given: Mapping[type, object] | None = None, factories: Factories | None = None) -> None:
        self._built = dict(given or {})
        self._factories = dict(factories or {})

    def for_handler(self, function: Callable[..., Any]) -> dict[str, object]:
        needed = needs(function)
        if not needed:
            return {}
        return {name: self._get(type_, function) for name, type_ in needed if self._has(type_, function, name)}

    def _has(self, type_: Any, function: Callable[..., Any], name: str) -> bool:
        """A parameter with a default may stay at it."""
        if type_ in self._built or type_ in self._factories:
            return True
        return inspect.signature(function).parameters[name].default is inspect.Parameter.empty

    def _get(self, type_: Any, function: Callable[..., Any]) -> object:
        if type_ not in self._built:
            if type_ not in self._factories:
                raise TransientResourceError(
                    f"The handler '{function.__qualname__}' needs a {getattr(type_, '__name__', type_)}, "
                    "which this worker does not have.",
                    code="resource_missing",
                    hint="Install the package that provides it through the entry-point group paddock.resources.",
                )
            self._built[type_] = self._factories[type_]()
        return self._built[type_]


def from_entry_points() -> tuple[dict[type, Callable[[], object]], dict[str, str]]:
    """The factories of other packages, and the entry points whose factories are missing, with why. A package that cannot be
    imported takes nobody else's work with it: only handlers that need what it brings fail, and say so."""
    found: dict[type, Callable[[], object]] = {}
    broken: dict[str, str] = {}
    for point in entry_points(group="paddock.resources"):
        try:
            found.update(_factories_of(point.name, point.load()))
        except (Exception, SystemExit) as problem:  # whatever a stranger's module raises when it is imported
            broken[point.name] = f"{type(problem).__name__}: {problem}"
            log.error("The resources of the entry point '%s' are missing: %s", point.name, broken[point.name])
    return found, broken


def _factories_of(name: str, loaded: object) -> Factories:
    if not isinstance(loaded, Mapping):
        raise TypeError(f"Entry point '{name}' of paddock.resources gave {loaded!r}, which is not a mapping.")
    for type_, factory in loaded.items():
        if not isinstance(type_, type) or not callable(factory):
            raise TypeError(
                f"Entry point '{name}' of paddock.resources maps {type_!r} to {factory!r}: not a type to a factory."
            )
    return loaded


@cache
def needs(function: Callable[..., Any]) -> tuple[tuple[str, Any], ...]:
    """The parameters after the turn, with their types."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if not parameters:
        return ()
    hints = typing.get_type_hints(function)
    return tuple(
        (parameter.name, hints.get(parameter.name))
        for parameter in parameters
        if parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    )


def function_of(kind: Kind, job: wire.ClaimedJob) -> Callable[..., Any] | None:
    return kind.handler if job.cleanup_of is None else kind.cleanup


def is_blocking(kind: Kind, job: wire.ClaimedJob) -> bool:
    """A kind's handler and its cleanup need not be of the same sort."""
    if job.cleanup_of is None:
        return _blocking(kind.handler)
    return kind.cleanup is not None and _blocking(kind.cleanup)


@cache
def _blocking(function: Callable[..., Any]) -> bool:
    return not inspect.iscoroutinefunction(function)
