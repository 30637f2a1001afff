"""Jobs as they change, until all of them have ended: told by the stream, or asked for where there is none.

Nothing that matters rests on a message having come. What the stream says is shown; that a job has ended is read from the
job itself, and every so often all that are still open are read, so that a message that was lost costs half a minute and
never an endless wait. A server that is away is waited for.
"""

import contextlib
import random
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paddock.cli.connection import Refusal, Server
from paddock.cli.errors import CommandFailed
from paddock.cli.jobs.progress import ENDED
from paddock.cli.output import Item

if TYPE_CHECKING:
    from paddock.client import Message

PATIENCE_SECONDS = 120.0
LOOK_AGAIN_SECONDS = 30.0
# The server says something every 15 s.
SILENCE_SECONDS = 25.0
# A line that lasted so long was a good one: proxies cut old ones, and that is no reason to give up.
GOOD_SECONDS = 10.0
MOST_CUTS = 3
PAUSE_SECONDS = 1.0


def watch(server: Server, ids: Sequence[str], changed: Callable[[Item], None]) -> list[Item]:
    """All of them, once they have ended; `changed` is called with each new state on the way."""
    watched = Watched(server, ids, changed)
    watched.look()
    try:
        follow_stream(watched)
    except NoStream as problem:
        sys.stderr.write(f"{problem} Asking again every second instead.\n")
        poll(watched)
    return [watched.jobs[id] for id in ids]


class NoStream(Exception):
    """The stream cannot be had here; its message says why."""


class Watched:
    """The jobs that are followed, each as it was last seen."""

    def __init__(self, server: Server, ids: Sequence[str], changed: Callable[[Item], None]) -> None:
        self.server = server
        self.open = list(dict.fromkeys(ids))
        self.jobs: dict[str, Item] = {}
        self._changed = changed
        self._looked = 0.0

    def scope(self) -> dict[str, Any]:
        """One stream for all of them: a token has few."""
        if len(self.open) == 1:
            return {"job": self.open[0]}
        kinds = {self.jobs[id]["kind"] for id in self.open}
        return {"batch": True, "kind": kinds.pop() if len(kinds) == 1 else None}

    def look(self) -> None:
        for id in list(self.open):
            self.read(id)
        self._looked = time.monotonic()

    def read(self, id: str, wait: float | None = None) -> None:
        job = patiently(lambda: self.server.get(f"/api/jobs/{id}", wait=wait))
        if job["status"] in ENDED:
            self.open.remove(id)
        if self.jobs.get(id) != job:
            self.jobs[id] = job
            self._changed(job)

    def hear(self, message: "Message") -> None:
        if message.event == "reset" or time.monotonic() > self._looked + LOOK_AGAIN_SECONDS:
            self.look()
        elif message.event == "job":
            self._on_message(message.data)
        elif message.event == "jobs":
            for job in message.data["jobs"]:
                self._on_message(job)

    def _on_message(self, job: Item) -> None:
        id = job["id"]
        if id not in self.open:
            return
        if job["status"] in ENDED:
            self.read(id)  # a message has no result
        elif job["turn_count"] >= self.jobs[id]["turn_count"]:  # else it is older than what was read meanwhile
            self.jobs[id] = job
            self._changed(job)


class JobStream:
    """The stream, picked up where it was cut."""

    def __init__(self, server: Server, scope: dict[str, Any]) -> None:
        self._server = server
        self._scope = scope
        self._place: str | None = None
        self._cuts = 0

    def listen(self) -> Generator["Message"]:
        """Until it is cut. What happened before the first message of all is not known: that one is a reset."""
        began, heard = time.monotonic(), False
        try:
            for message in self._server.stream(**self._scope, last_event_id=self._place, silence=SILENCE_SECONDS):
                heard = True
                yield replace(message, event="reset") if self._place is None else message
                self._place = message.id or self._place
        except Refusal as refusal:
            if refusal.status < 500:
                raise NoStream(f"The stream is refused: {refusal.message}") from None
        except CommandFailed:
            pass  # cut, or the server is away
        lasted = time.monotonic() - began
        if not heard and lasted >= SILENCE_SECONDS:
            raise NoStream("The stream says nothing: something on the way holds it back.")
        self._cuts = 0 if heard and lasted >= GOOD_SECONDS else self._cuts + 1

    def pause(self) -> None:
        """Before the next try. Not all at the same moment: a server that comes back has many listeners."""
        if self._cuts >= MOST_CUTS:
            raise NoStream(f"The stream was cut {self._cuts} times in a row.")
        time.sleep(PAUSE_SECONDS * random.uniform(0.5, 1.5))


def follow_stream(watched: Watched) -> None:
    if not watched.open:
        return
    line = JobStream(watched.server, watched.scope())
    while True:
        with contextlib.closing(line.listen()) as messages:
            for message in messages:
                watched.hear(message)
                if not watched.open:
                    return
        line.pause()
        watched.read(watched.open[0])  # waits for a server that is away
        if not watched.open:
            return


def poll(watched: Watched) -> None:
    """Each round waits inside its first question for that job's end: an end is seen at once and nothing spins."""
    while watched.open:
        for place, id in enumerate(list(watched.open)):
            watched.read(id, wait=1 if place == 0 else None)


def patiently(ask: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    told = False
    while True:
        try:
            return ask()
        except CommandFailed as failed:
            away = not isinstance(failed, Refusal) or failed.status >= 500
            if not away or time.monotonic() > deadline:
                raise
            if not told:
                sys.stderr.write(f"{failed.message} Waiting for it; the jobs go on.\n")
                told = True
            time.sleep(1)
