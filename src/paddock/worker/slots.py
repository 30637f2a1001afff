"""How many jobs this worker may still take, and of which kinds.

A claim in flight reserves what it asks for, so that all claims together never ask for more than there is. A slot is
taken from the claim's answer until the end of its job is acknowledged, not until its handler returns.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from paddock.jobs import wire

MOST_PER_CLAIM = 100


@dataclass(frozen=True, slots=True)
class Ask:
    """What one claim may bring. `limits` holds the kinds of which fewer than `limit` may come."""

    kinds: list[str]
    limit: int
    submitted_limit: int
    limits: dict[str, int] = field(default_factory=dict)

    def most_of(self, kind: str) -> int:
        return self.limits.get(kind, self.limit)


class Slots:
    def __init__(
        self,
        kinds: Iterable[str],
        concurrency: int,
        submitted_concurrency: int,
        kind_concurrency: Mapping[str, int],
    ) -> None:
        self.kinds = list(kinds)
        self.concurrency = concurrency
        self._free = concurrency
        self._submitted_free = submitted_concurrency
        self._room = {kind: most for kind, most in kind_concurrency.items() if kind in self.kinds}
        # How many claims in flight could bring a job of this kind, or a submitted one.
        self._covered: Counter[str] = Counter()
        self._submitted_covered = 0

    @property
    def free(self) -> int:
        return self._free

    def ask(self, *, another: bool) -> Ask | None:
        """Reserves what a new claim may bring. With `another` it asks for everything; without, only for what no claim
        in flight could bring: a kind, or the submitted jobs, that had no room when those claims were made."""
        limit = min(self._free, MOST_PER_CLAIM)
        submitted = min(self._submitted_free, MOST_PER_CLAIM)
        open_kinds = [kind for kind in self.kinds if self._room.get(kind, 1) > 0] if limit > 0 else []
        if another and (open_kinds or submitted > 0):
            return self._reserve(self.kinds, limit if open_kinds else 0, max(submitted, 0))
        uncovered = [kind for kind in open_kinds if not self._covered[kind]]
        if uncovered:
            return self._reserve(uncovered, limit, 0)
        if submitted > 0 and not self._submitted_covered:
            return self._reserve(self.kinds, 0, submitted)
        return None

    def answered(self, ask: Ask, jobs: Iterable[wire.ClaimedJob]) -> None:
        self._change(ask, -1)
        self.take(jobs)

    def take(self, jobs: Iterable[wire.ClaimedJob]) -> None:
        for job in jobs:
            self._count(job, -1)

    def give_back(self, job: wire.ClaimedJob) -> None:
        self._count(job, 1)

    def _reserve(self, kinds: list[str], limit: int, submitted: int) -> Ask:
        limits = {kind: room for kind, room in self._room.items() if kind in kinds and room < limit}
        ask = Ask(kinds, limit, submitted, {kind: max(room, 0) for kind, room in limits.items()})
        self._change(ask, 1)
        return ask

    def _change(self, ask: Ask, by: int) -> None:
        self._free -= by * ask.limit
        self._submitted_free -= by * ask.submitted_limit
        self._submitted_covered += by * (ask.submitted_limit > 0)
        for kind in ask.kinds:
            most = ask.most_of(kind)
            self._covered[kind] += by * (most > 0)
            if kind in self._room:
                self._room[kind] -= by * most

    def _count(self, job: wire.ClaimedJob, by: int) -> None:
        if job.submitted:
            self._submitted_free += by
            return
        self._free += by
        if job.kind in self._room:
            self._room[job.kind] += by
