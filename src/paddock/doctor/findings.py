"""What a check finds, and what to do about it."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal

from paddock.config import Config
from paddock.jobs.core import Core
from paddock.jobs.errors import InfrastructureError
from paddock.log import scrub

Level = Literal["ok", "warning", "broken"]


@dataclass(frozen=True)
class Finding:
    check: str
    level: Level
    message: str
    what_to_do: str | None = None


def ok(check: str, message: str) -> Finding:
    return Finding(check, "ok", message)


def warning(check: str, message: str, what_to_do: str) -> Finding:
    return Finding(check, "warning", message, what_to_do)


def broken(check: str, message: str, what_to_do: str) -> Finding:
    return Finding(check, "broken", message, what_to_do)


def reason_of(problem: Exception) -> str:
    """Our own errors are sentences already; of a library's the type says most."""
    told = problem.message if isinstance(problem, InfrastructureError) else f"{type(problem).__name__}: {problem}"
    return scrub(told, limit=500)


Check = Callable[[Core, Config], AsyncIterator[Finding]]
