"""What a check finds, and what to do about it."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal

from paddock.config import Config
from paddock.jobs.core import Core

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


Check = Callable[[Core, Config], AsyncIterator[Finding]]
