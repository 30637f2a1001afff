"""What a runtime offers. Nothing here waits for anything to happen: jobs poll.

A caller needs no handle to what it started: after a crash, or in another replica, `get` finds it again by its name.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, Protocol
from uuid import UUID

from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.model import JsonObject
from paddock.runtimes.diagnosis import Clock, Diagnosis

State = Literal["starting", "up", "ended", "unknown"]
# Why something ended, as evidence: what it means is decided elsewhere. disrupted: whoever runs the machines took it away.
# failed: it ended where it could have gone on, and `Found.diagnosis` says how.
Why = Literal["out_of_memory", "keeper_gone", "exited", "disrupted", "failed"]
# polled: what was heard a moment ago will do. now: as it is now. closely: with the evidence of why it is so.
Look = Literal["polled", "now", "closely"]


class NoRoom(Exception):
    """What was asked for does not fit here: a sentence that says what is missing."""

    def __init__(self, what: Literal["memory", "disk"], message: str) -> None:
        super().__init__(message)
        self.what = what
        self.message = message


class StartRefused(PermanentRunnerError):
    """It cannot be started here, and trying again does not help."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.message, code=diagnosis.category, hint=diagnosis.hint)
        self.diagnosis = diagnosis


class CannotGrow(Exception):
    """What runs keeps the memory it has: a sentence that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What is to run. Only the hash of the token is told."""

    name: str
    instance: UUID
    generation: UUID
    wrapper_type: str
    memory_bytes: int
    cpu: int
    disk_bytes: int
    token_sha256: str
    owner: str
    # How often each category of failure came to this start already.
    failures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Waiting:
    """What something that starts waits for, in words, and how long it may. Without a clock it may for ever."""

    words: str
    clock: Clock | None = None
    limit: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`uid` tells this start of the name from every other; `address` is there while it is up. `phase` is the runtime's own word
    for how it is, `evidence` is there where it was looked at closely."""

    name: str
    uid: str
    instance: UUID
    generation: UUID
    state: State
    made_at: datetime
    address: Address | None = None
    why: Why | None = None
    phase: str = ""
    waiting: Waiting | None = None
    diagnosis: Diagnosis | None = None
    evidence: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class RuntimeWords:
    """How people are told of what runs there: "Process … disappeared from this machine"."""

    thing: str
    place: str


class Runtime(Protocol):
    words: RuntimeWords
    # Whether what runs can be given more memory.
    grows: bool

    def alongside(self, changed: Callable[[UUID], None]) -> AbstractAsyncContextManager[None]:
        """Around the life of a control plane. `changed` is told each instance of which something ended or vanished, as soon
        as that is heard of."""

    async def start(self, start: Start) -> bool:
        """True if it is started, or was before with this generation. False: an earlier start of the same instance is
        still ending, ask again. Raises `NoRoom` and `StartRefused`."""

    async def get(self, name: str, look: Look = "now") -> Found | None:
        """None: there is nothing of this name."""

    async def list(self, after: str = "", limit: int = 100) -> Sequence[Found]:
        """In the order of their names, those after this one."""

    async def logs(self, name: str) -> str | None:
        """The end of what it wrote; None: there is nothing of this name."""

    async def delete(
        self, name: str, uid: str | None = None, grace: timedelta | None = None, *, keep_loaded: bool = False
    ) -> bool:
        """Asks it to end, ends it after the grace (None: the runtime's own), then takes away all that it and earlier starts of
        its instance left. True: it is gone, or was, or a later start is there by now. False: it is still ending, ask again.
        With `keep_loaded` what an earlier start had loaded stays for the next one, where this one never ran."""

    async def release(self, name: str, uid: str) -> None:
        """Takes away what failed and is of no use to another start. What a reopened instance begins from stays."""

    async def grow(self, name: str, uid: str, memory_bytes: int) -> bool:
        """Whether it has that much memory now. False: it was asked for, ask again. Raises `CannotGrow`."""

    async def take_back(self, name: str, uid: str, memory_bytes: int) -> None:
        """It is to have this much memory again, what was asked for since is no longer wanted."""

    async def usage(self, name: str) -> Usage | None: ...

    async def memory_bytes(self) -> int | None:
        """How much all instances may have together; None: the runtime's own scheduler decides."""
