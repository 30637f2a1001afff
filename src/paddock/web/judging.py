"""Is all well? Facts in, clauses of one sentence out; none of them: all is well.

Each rule looks at the facts for one thing that a person on call would want to know. The order of `RULES` is that of the
sentence: what stops everything first, what somebody did on purpose last.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from paddock.amounts import listed
from paddock.jobs.events import DELIVERY_KIND
from paddock.jobs.figures.alarms import Alarm
from paddock.jobs.figures.hanging import Hanging
from paddock.jobs.figures.overviews import Counts, KindSeen, WorkerSeen
from paddock.jobs.figures.trends import ErrorGroup
from paddock.jobs.schedule_runs import FailedSchedule
from paddock.web.words import duration, number, plural

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
    # What somebody may dismiss, and the newest that it is about.
    alarm: Alarm | None = None
    up_to: datetime | None = None

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
    failed_schedules: Sequence[FailedSchedule] = ()
    # Up to when each alarm was dismissed.
    dismissed: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def public(self) -> frozenset[str]:
        return frozenset(kind.name for kind in self.kinds if not kind.internal)

    @property
    def at_work(self) -> Sequence[WorkerSeen]:
        """Live workers that run what people submit: not those inside `serve`, which run the control plane's own."""
        return [w for w in self.workers if w.live and not w.dying and self.public.intersection(w.kinds)]


def judged(facts: Facts) -> list[Clause]:
    left = _without_dismissed(facts)
    return [_dismissible(clause, rule, left) for rule in RULES for clause in rule(left)]


def _without_dismissed(facts: Facts) -> Facts:
    def is_new(alarm: str, at: datetime) -> bool:
        return alarm not in facts.dismissed or at > facts.dismissed[alarm]

    return replace(
        facts,
        errors=[error for error in facts.errors if is_new(_alarm_of(error), error.last_at)],
        workers=[worker for worker in facts.workers if worker.live or is_new("workers", worker.beat_at)],
        failed_schedules=[schedule for schedule in facts.failed_schedules if is_new("schedules", schedule.at)],
    )


def _alarm_of(error: ErrorGroup) -> Alarm:
    return "deliveries" if error.kind == DELIVERY_KIND else "failures"


def _dismissible(clause: Clause, rule: "Rule", facts: Facts) -> Clause:
    """What has happened can be dismissed; what still lasts cannot."""
    alarm = ALARMS.get(rule)
    if alarm is None or clause.tone != "bad":
        return clause
    evidence = {
        "workers": [worker.beat_at for worker in facts.workers if not worker.live],
        "schedules": [schedule.at for schedule in facts.failed_schedules],
    }.get(alarm, [error.last_at for error in facts.errors if _alarm_of(error) == alarm])
    return replace(clause, alarm=alarm, up_to=max(evidence, default=None))


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
    if not facts.at_work and not any(kind.scaled for kind in facts.kinds):
        last = [worker.beat_at for worker in facts.workers if facts.public.intersection(worker.kinds)]
        yield Clause("no worker is live", "/workers", since=max(last, default=None), joined="for", lasting=True)
    elif facts.at_work and all(worker.quiet for worker in facts.at_work):
        yield Clause("every worker is quiet and claims nothing", "/workers", tone="wait")


def _unoffered(facts: Facts) -> list[KindSeen]:
    if not facts.at_work and not any(kind.scaled for kind in facts.kinds):  # said already, of all of them
        return []
    return [kind for kind in facts.kinds if kind.unoffered and not kind.housekeeping and _waiting(kind)]


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
    late = facts.beat * BEATS_MISSED
    stopped = [
        worker for worker in facts.workers if worker.live and not worker.dying and facts.now - worker.beat_at > late
    ]
    stopped += _not_replaced(facts.workers)
    if len(stopped) == 1:
        [worker] = stopped
        what = "worker" if facts.public.intersection(worker.kinds) else "replica"
        yield Clause(f"{what} {worker.worker_id} stopped beating", "/workers", since=worker.beat_at)
    elif stopped:
        since = max(worker.beat_at for worker in stopped)
        yield Clause(f"{len(stopped)} workers stopped beating", "/workers", since=since, joined=", the last")


def _not_replaced(workers: Sequence[WorkerSeen]) -> list[WorkerSeen]:
    """Those lost for which no other came: one of the same name, or one that started later and offers all that it did.
    A worker that starts again may have another name, as a pod does. Each newcomer stands for one lost worker."""
    live = [worker for worker in workers if worker.live and not worker.dying]
    names = {worker.worker_id for worker in live}
    lost = [worker for worker in workers if not worker.live and not worker.dying and worker.worker_id not in names]
    returned = {worker.worker_id for worker in workers if not worker.live}
    newcomers = [worker for worker in live if worker.worker_id not in returned]
    newcomers.sort(key=lambda worker: worker.started_at)
    left = []
    for worker in sorted(lost, key=lambda worker: worker.beat_at):
        heir = next(
            (new for new in newcomers if new.started_at >= worker.beat_at and set(new.kinds) >= set(worker.kinds)), None
        )
        if heir is None:
            left.append(worker)
        else:
            newcomers.remove(heir)
    return left


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
    # What somebody asked for wrongly is theirs to mend: it stays in the list of failures below and is no alarm.
    errors = [error for error in facts.errors if error.kind != DELIVERY_KIND and error.n > error.mistakes]
    kinds = sorted({error.kind for error in errors})
    if not kinds:
        return
    since = min(error.first_at for error in errors)
    n = sum(error.n - error.mistakes for error in errors)
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


def _failed_schedules(facts: Facts) -> Iterator[Clause]:
    names = [schedule.name for schedule in facts.failed_schedules]
    if len(names) == 1:
        yield Clause(f"the last run of schedule {names[0]} failed", f"/schedules/{names[0]}")
    elif names:
        yield Clause(f"the last runs of {_named(names, 'schedules')} failed", "/schedules")


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


Rule = Callable[[Facts], Iterator[Clause]]
RULES: Sequence[Rule] = (
    _nobody_works,
    _nobody_offers,
    _stopped_beating,
    _hanging,
    _failures,
    _failed_schedules,
    _waits_long,
    _deliveries,
    _figures_stand_still,
    _drained,
    _paused,
)
ALARMS: Mapping[Rule, Alarm] = {
    _stopped_beating: "workers",
    _failures: "failures",
    _failed_schedules: "schedules",
    _deliveries: "deliveries",
}


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
