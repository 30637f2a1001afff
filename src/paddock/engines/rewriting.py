"""What an engine offers that rewrites tables when it is told to, and how it is ended by somebody else later.

A statement runs on the engine's own machines and does not end with the process that sent it. So what ends it, its identity, is
told before anything runs, and whoever comes later ends it by that. Nobody attaches to a statement again.

Everything blocks: the callers are handlers in processes of their own, which a signal ends inside any call.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, Protocol

from paddock.jobs.model import JsonObject

# Told what ends the statement, before it runs and again whenever that changes. What it raises ends the statement unrun.
Started = Callable[[JsonObject], None]
# Told what a person may see: phase, percent.
Tell = Callable[[JsonObject], None]
# `closed`: the engine said that it is over. `unknown`: the engine does not know it, or not any more.
Ended = Literal["closed", "unknown"]


@dataclass(frozen=True, slots=True)
class TableStatement:
    """`session` is set for this statement alone."""

    sql: str
    session: Mapping[str, str] = field(default_factory=dict)


class Rewriter(Protocol):
    name: str
    type: str

    def run(self, statement: TableStatement, limit: timedelta, started: Started, tell: Tell) -> None:
        """Returns once the engine said that the statement succeeded. `limit` is kept by the engine itself."""

    def rows(self, sql: str) -> list[list[object]]:
        """Of a small answer."""

    def end(self, identity: JsonObject) -> Ended | None:
        """None: it was told to end and has not yet. Raises a transient `engine_unavailable` where nobody answers."""

    def close(self) -> None: ...
