"""How far claims have got in each (kind, lane), so that they walk no dead index entries before that.

A cursor may never pass a job that is due: whatever makes one due lowers it again, and a claim under way may move it only
as far as nothing became due meanwhile.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

Pair = tuple[str, int]
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
# A row that commits this much after its due time was taken is still seen by a bounded claim, even if its wake-up is lost.
SLACK = timedelta(milliseconds=100)


@dataclass(eq=False)
class Flight:
    """A claim statement under way. It may not see what commits meanwhile, so what became due meanwhile bounds how far
    its answer may move the cursors: a job that commits late, far behind its due time, would be passed for good."""

    behind: dict[Pair, datetime] = field(default_factory=dict)
    forgotten: bool = False

    def note(self, pair: Pair, due_at: datetime) -> None:
        self.behind[pair] = min(due_at, self.behind.get(pair, due_at))


class Cursors:
    def __init__(self) -> None:
        self.reached: dict[Pair, datetime] = {}
        self.flights: set[Flight] = set()

    def get(self, pair: Pair) -> datetime:
        return self.reached.get(pair, BEGINNING)

    @contextmanager
    def flight(self) -> Iterator[Flight]:
        flight = Flight()
        self.flights.add(flight)
        try:
            yield flight
        finally:
            self.flights.discard(flight)

    def lower(self, pair: Pair, due_at: datetime) -> None:
        """Something became due then."""
        cursor = self.reached.get(pair)
        if cursor is not None and due_at < cursor:
            self.reached[pair] = due_at
        for flight in self.flights:
            flight.note(pair, due_at)

    def advance(self, oldest: Mapping[Pair, datetime], flight: Flight) -> None:
        """The oldest row taken was the oldest there was: nothing before it is worth walking again."""
        if flight.forgotten:
            return
        for pair, due_at in oldest.items():
            reached = max(due_at - SLACK, self.get(pair))
            self.reached[pair] = min(reached, flight.behind.get(pair, reached))

    def forget(self, pair: Pair) -> None:
        self.reached.pop(pair, None)
        for flight in self.flights:
            flight.note(pair, BEGINNING)

    def forget_all(self) -> None:
        self.reached.clear()
        for flight in self.flights:
            flight.forgotten = True
