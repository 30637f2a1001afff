"""Is all well? Facts in, clauses of one sentence out; none of them: all is well.

Each rule looks at the facts for one thing that a person on call would want to know. The order of `RULES` is that of the
sentence: what stops everything first, what somebody did on purpose last.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from paddock.jobs.events import DELIVERY_KIND
from paddock.jobs.hanging import Hanging
from paddock.jobs.overviews import Counts, KindSeen, WorkerSeen
from paddock.jobs.trends import ErrorGroup
from paddock.web.words import duration, listed, number, plural

FIGURES_STILL_AFTER = timedelta(minutes=2)
WAITS_LONG = timedelta(minutes=1)
BEATS_MISSED = 3
NAMED_AT_MOST = 3
# A wait is told aloud again when it has passed the next of these.
STAGES = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 240, 1440))


@dataclass(frozen=True, slots=True)
class Clause:
    """`since` is when it began, said after `joined`: with "for" or as a wait it is a length of time, else "… ago".

    It begins with a word of ours, which is capitalised at the beginning of the sentence; the name of a kind must not be.
    `spoken` is what a screen reader is told: without figures that change all the time, so that it is told only news.
    """

    text: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    since: datetime | None = None
    joined: str = ""
    lasting: bool = False
    tone: str = "bad"
    aloud: str | None = None

    @property
    def spoken(self) -> str:
        return self.aloud or self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`errors` are those of the last hour; `counted_to` is None before the first figures."""

    now: datetime
    kinds: Sequence[KindSeen]
    workers: Sequence[WorkerSeen]
    beat: timedelta
    errors: Sequence[ErrorGroup] = ()
    counted_to: datetime | None = None
    drained: bool = False
    drained_at: datetime | None = None
    retried_deliveries: int = 0
    retried_since: datetime | None = None
    hanging: Sequence[Hanging] = ()

    @property
    def public(self) -> frozenset[str]:
        return frozenset(kind.name for kind in self.kinds if not kind.internal)

    @property
    def at_work(self) -> Sequence[WorkerSeen]:
        """Live workers that run what people submit: not those inside `serve`, which run the control plane's own."""
        return [w for w in self.workers if w.live and not w.dying and self.public.intersection(w.kinds)]


def judged(facts: Facts) -> list[Clause]:
    return [clause for rule in RULES for clause in rule(facts)]


def spoken(clauses: Sequence[Clause]) -> str:
    said = "; ".join(clause.spoken for clause in clauses)
    return f"{said[0].upper()}{said[1:]}." if said else "All well."


def _figures_stand_still(facts: Facts) -> Iterator[Clause]:
    counted = facts.counted_to
    if counted is not None and facts.now - counted > FIGURES_STILL_AFTER:
        yield Clause("figures stand still", "/schedules", since=counted, joined="for", lasting=True)


def _nobody_works(facts: Facts) -> Iterator[Clause]:
    if not facts.public:
        return
    if not facts.at_work:
        last = [worker.beat_at for worker in facts.workers if facts.public.intersection(worker.kinds)]
        yield Clause("no worker is live", "/workers", since=max(last, default=None), joined="for", lasting=True)
    elif all(worker.quiet for worker in facts.at_work):
        yield Clause("every worker is quiet and claims nothing", "/workers", tone="wait")


def _unoffered(facts: Facts) -> list[KindSeen]:
    if not facts.at_work:  # said already, of all of them
        return []
    return [kind for kind in facts.kinds if not kind.offered and not kind.housekeeping and _waiting(kind)]


def _waiting(kind: KindSeen) -> int:
    return kind.pending + kind.submitted


def _nobody_offers(facts: Facts) -> Iterator[Clause]:
    kinds = _unoffered(facts)
    if kinds:
        oldest = max(kind.oldest_due for kind in kinds)
        named = _named([kind.name for kind in kinds], "kinds", "or")
        yield Clause(
            f"no live worker offers {named}",
            "/kinds",
            since=facts.now - oldest if oldest else None,
            joined=f"({plural(sum(map(_waiting, kinds)), 'job')}), the oldest due",
        )


def _stopped_beating(facts: Facts) -> Iterator[Clause]:
    replaced = {worker.worker_id for worker in facts.workers if worker.live}
    late = facts.beat * BEATS_MISSED
    stopped = [
        worker
        for worker in facts.workers
        if not worker.dying and (facts.now - worker.beat_at > late if worker.live else worker.worker_id not in replaced)
    ]
    if len(stopped) == 1:
        [worker] = stopped
        what = "worker" if facts.public.intersection(worker.kinds) else "replica"
        yield Clause(f"{what} {worker.worker_id} stopped beating", "/workers", since=worker.beat_at)
    elif stopped:
        since = max(worker.beat_at for worker in stopped)
        yield Clause(f"{len(stopped)} workers stopped beating", "/workers", since=since, joined=", the last")


def _hanging(facts: Facts) -> Iterator[Clause]:
    overdue = [job for job in facts.hanging if job.overdue]
    unusual = [job for job in facts.hanging if not job.overdue]
    if overdue:
        many = "jobs run past their time-out and are not stopped"
        yield _of_hanging(
            overdue, "runs past its time-out and is not stopped", many, (", claimed", ", the first claimed")
        )
    if unusual:
        few, many = "runs far longer than usual", "jobs run far longer than usual"
        clause = _of_hanging(unusual, few, many, (", for", ", the longest for"))
        yield replace(clause, lasting=True, tone="wait")


def _of_hanging(jobs: Sequence[Hanging], one: str, many: str, joined: tuple[str, str]) -> Clause:
    first = min(jobs, key=lambda job: job.since)
    if len(jobs) > 1:
        # There what runs is listed, the longest first.
        return Clause(f"{number(len(jobs))} {many}", "/workers", since=first.since, joined=joined[1], aloud=many)
    return Clause(f"1 job of {first.kind} {one}", f"/jobs/{first.id}", since=first.since, joined=joined[0])


def _failures(facts: Facts) -> Iterator[Clause]:
    errors = [error for error in facts.errors if error.kind != DELIVERY_KIND]
    kinds = sorted({error.kind for error in errors})
    if not kinds:
        return
    since = min(error.first_at for error in errors)
    n = sum(error.n for error in errors)
    if len(kinds) == 1:
        query = {"kind": kinds[0], "status": "failed"}
        codes = {error.code for error in errors}
        if len(codes) == 1:
            query["error_code"] = codes.pop()
        text, aloud = f"{plural(n, 'failure')} of {kinds[0]} in the last hour", f"jobs of {kinds[0]} fail"
        yield Clause(text, "/jobs", query, since, ", first", aloud=aloud)
    else:
        text = f"{len(kinds)} kinds have failures in the last hour"
        yield Clause(text, "/jobs", {"status": "failed"}, since, f"({number(n)}), first", aloud=text)


def _waits_long(facts: Facts) -> Iterator[Clause]:
    told = {kind.name for kind in _unoffered(facts)}
    waiting = [kind for kind in facts.kinds if not kind.paused and not kind.housekeeping and kind.name not in told]
    oldest = max(waiting, key=lambda kind: kind.oldest_due, default=None)
    if oldest is None or oldest.oldest_due < WAITS_LONG:
        return
    stage = max(stage for stage in STAGES if stage <= oldest.oldest_due)
    yield Clause(
        f"oldest due job ({oldest.name}) waits",
        "/jobs",
        {"kind": oldest.name, "status": "pending" if oldest.pending else "submitted"},
        facts.now - oldest.oldest_due,
        lasting=True,
        tone="wait",
        aloud=f"the oldest due job, of {oldest.name}, waits longer than {duration(stage)}",
    )


def _deliveries(facts: Facts) -> Iterator[Clause]:
    failed = [error for error in facts.errors if error.kind == DELIVERY_KIND]
    if failed:
        n, since = sum(error.n for error in failed), min(error.first_at for error in failed)
        text = f"{plural(n, 'webhook delivery', 'webhook deliveries')} failed in the last hour"
        yield Clause(text, "/webhooks", since=since, joined=", first", aloud="webhook deliveries fail")
    if facts.retried_deliveries:
        n = facts.retried_deliveries
        text = f"{plural(n, 'webhook delivery waits', 'webhook deliveries wait')} for another try"
        yield Clause(
            text,
            "/jobs",
            {"kind": DELIVERY_KIND, "status": "pending"},
            facts.retried_since,
            ", first tried",
            tone="wait",
            aloud="webhook deliveries are refused and tried again",
        )


def _drained(facts: Facts) -> Iterator[Clause]:
    if facts.drained:
        text = "drain mode is on"
        yield Clause(text, "/settings", since=facts.drained_at, joined="for", lasting=True, tone="wait")


def _paused(facts: Facts) -> Iterator[Clause]:
    paused = [kind for kind in facts.kinds if kind.paused]
    if paused:
        text = f"paused: {_named([kind.name for kind in paused], 'kinds')}"
        began = [kind.paused_at for kind in paused if kind.paused_at is not None]
        yield Clause(text, "/kinds", since=min(began, default=None), joined=", for", lasting=True, tone="wait")


def _named(names: Sequence[str], many: str, last: str = "and") -> str:
    return listed(sorted(names), last) if len(names) <= NAMED_AT_MOST else f"{len(names)} {many}"


RULES: Sequence[Callable[[Facts], Iterator[Clause]]] = (
    _nobody_works,
    _nobody_offers,
    _stopped_beating,
    _hanging,
    _failures,
    _waits_long,
    _deliveries,
    _figures_stand_still,
    _drained,
    _paused,
)


def judged_own(counts: Counts) -> list[Clause]:
    """An analyst's sentence: of their own jobs, what runs, what waits, what failed."""
    totals = {
        status: sum(of_kind.get(status, 0) for of_kind in counts.by_kind.values())
        for status in ("failed", "claimed", "submitted", "pending")
    }
    words = {
        "failed": ("of yours failed in the last 24 h", "bad"),
        "claimed": ("running", "busy"),
        "submitted": ("waiting outside", "busy"),
        "pending": ("waiting", "wait"),
    }
    return [
        Clause(f"{plural(n, 'job')} {words[status][0]}", "/jobs", {"status": status}, tone=words[status][1])
        for status, n in totals.items()
        if n
    ]
