"""What happened to a job, in words, and what to do about it.

A pure function over what the API answers about the job and its surroundings, so that the command line and the dashboard
say the same. What the caller may not see (workers, state: None) is not guessed at.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

Facts = Mapping[str, Any]

# A beat is every 10 s: a report or beat this much older is worth a word.
SILENT = timedelta(seconds=30)
LONG_WAIT = timedelta(minutes=1)
# How the core says "when the old attempt has stopped": a time that never comes by itself.
NEVER = 9999


@dataclass(frozen=True)
class Step:
    at: str
    text: str


@dataclass(frozen=True)
class Explanation:
    """`sentence`: where it stands and why. `what_to_do`: nothing, or one sentence for each thing that helps."""

    sentence: str
    steps: list[Step] = field(default_factory=list)
    what_to_do: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Case:
    """Everything an explanation looks at."""

    job: Facts
    timeline: Sequence[Facts]
    kind: Facts | None
    workers: Sequence[Facts] | None
    state: Facts | None
    now: datetime

    @property
    def name(self) -> str:
        return f"This {self.job['kind']} job" if self.job.get("cleanup_of") is None else "This cleanup"

    def time(self, name: str) -> datetime | None:
        return moment(self.job.get(name))

    def since(self, name: str) -> timedelta:
        at = self.time(name)
        return self.now - at if at is not None else timedelta(0)

    @property
    def due_in(self) -> timedelta:
        due = self.time("due_at") or self.time("visible_at")
        return timedelta(0) if due is None else due - self.now

    @property
    def offering(self) -> list[Facts] | None:
        """Live workers that take this kind; None when the caller may not see workers."""
        if self.workers is None:
            return None
        return [worker for worker in self.workers if worker.get("live", True) and self.job["kind"] in worker["kinds"]]


def explain(
    job: Facts,
    timeline: Sequence[Facts] = (),
    kinds: Sequence[Facts] | None = None,
    workers: Sequence[Facts] | None = None,
    state: Facts | None = None,
    *,
    now: datetime | None = None,
) -> Explanation:
    kind = next((seen for seen in kinds or () if seen["name"] == job["kind"]), None)
    case = _Case(job, timeline, kind, workers, state, now or datetime.now(UTC))
    told = EXPLAINERS[str(job["status"])](case)
    return Explanation(told.sentence, steps(timeline), told.what_to_do)


def _pending(case: _Case) -> Explanation:
    if _waits_for_attempt(case):
        return Explanation(
            f"{case.name} waits until the attempt it cleans up after has stopped, or that attempt's worker is gone.",
            what_to_do=["Nothing: it becomes due by itself, at the latest when that worker's lease ends."],
        )
    if case.due_in > timedelta(0):
        return _not_due(case)
    return _due(case)


def _waits_for_attempt(case: _Case) -> bool:
    due = str(case.job.get("due_at") or "")
    return case.job.get("cleanup_of") is not None and (due.startswith(str(NEVER)) or due == "infinity")


def _not_due(case: _Case) -> Explanation:
    when = f"{case.job.get('due_at') or case.job.get('visible_at')} (in {span(case.due_in)})"
    run_now = f"`paddock jobs run-now {case.job['id']}` makes it due at once."
    last = _last(case.timeline, "retry")
    failures = (case.job.get("failure_count") or 0) + (case.job.get("cluster_count") or 0)
    if failures and case.job.get("error_message"):
        limit = _limit(case)
        return Explanation(
            f"{case.name} failed {_times(failures)}{limit} and tries again at {when}. The last error was: "
            f"{_error(case.job)}",
            what_to_do=[*_hint(last), f"If the cause is mended already, {run_now}"],
        )
    released = _last(case.timeline, "released")
    if released is not None and case.job.get("turn_count"):
        return Explanation(
            f"{case.name} was given back ({_reason(released)}) and is due at {when}.", what_to_do=[run_now]
        )
    if case.job.get("turn_count"):
        return Explanation(f"{case.name} ended a turn and goes on at {when}.", what_to_do=[run_now])
    return Explanation(f"{case.name} is not due yet: it may run from {when}.", what_to_do=[run_now])


def _limit(case: _Case) -> str:
    limit = ((case.kind or {}).get("retry") or {}).get("limit")
    return "" if limit is None or case.job.get("cluster_count") else f" of {limit} that are forgiven"


def _due(case: _Case) -> Explanation:
    waits = f"{case.name} has been due for {span(-case.due_in)}"
    rescued = _rescued(case)
    if case.kind is not None and case.kind.get("paused") and case.job.get("cleanup_of") is None:
        by = case.kind.get("paused_by") or "somebody"
        reason = f" ({case.kind['pause_reason']})" if case.kind.get("pause_reason") else ""
        return Explanation(
            f"{waits}, but {by} paused its kind '{case.job['kind']}'{reason}: nothing new of it is claimed.{rescued}",
            what_to_do=[f"`paddock kinds resume {case.job['kind']}` lets it run."],
        )
    if _nobody_offers(case):
        return Explanation(
            f"{waits}, but no live worker offers the kind '{case.job['kind']}'.{rescued}",
            what_to_do=[f"Start a worker that has it: `paddock worker --kinds {case.job['kind']}`.", *_seen(case)],
        )
    offering = case.offering
    if offering and all(worker.get("quiet") or worker.get("dying") for worker in offering):
        return Explanation(
            f"{waits}, but every worker that offers '{case.job['kind']}' was told to claim nothing new.{rescued}",
            what_to_do=["`paddock workers quiet --off WORKER` lets one claim again, or start another worker."],
        )
    if case.kind is not None and case.kind.get("serial") and case.kind.get("claimed"):
        return Explanation(
            f"{waits}. Only one job of kind '{case.job['kind']}' runs at a time, and another one does now.{rescued}",
            what_to_do=[f"`paddock jobs list --kind {case.job['kind']} --status claimed` shows which."],
        )
    return _in_line(case, waits, rescued)


def _nobody_offers(case: _Case) -> bool:
    offering = case.offering
    if case.kind is not None and case.kind.get("internal"):
        return False
    if offering is not None:
        return not offering
    return case.kind is not None and case.kind.get("offered") is False


def _seen(case: _Case) -> list[str]:
    live = [worker for worker in case.workers or () if worker.get("live", True)]
    if not live:
        return []
    return [f"{len(live)} live worker{_s(len(live))} offer{'s' if len(live) == 1 else ''} other kinds only."]


def _in_line(case: _Case, waits: str, rescued: str) -> Explanation:
    others = max(0, ((case.kind or {}).get("pending") or 0) - 1)
    busy = ""
    if case.offering:
        running = sum(worker.get("running") or 0 for worker in case.offering)
        slots = sum(worker.get("slots") or 0 for worker in case.offering)
        n = len(case.offering)
        busy = f" {n} worker{_s(n)} offer{'s' if n == 1 else ''} it, with {running} of {slots} slots taken."
    behind = f", behind or beside {others:,} other{_s(others)} of its kind" if others else ""
    advice = []
    if -case.due_in > LONG_WAIT:
        advice = ["Start more workers, or raise their concurrency; `paddock workers list` shows how busy they are."]
    elif not others:
        advice = ["Nothing: a free worker takes it in a moment."]
    return Explanation(f"{waits}{behind}.{busy}{rescued}", what_to_do=advice)


def _claimed(case: _Case) -> Explanation:
    worker = case.job.get("claimed_by") or "a worker"
    progress = _progress(case.job)
    sentence = f"{case.name} has been running on {worker} for {span(case.since('claimed_at'))}{progress}."
    holder = next(
        (seen for seen in case.workers or () if str(seen.get("session")) == str(case.job.get("session_id"))), None
    )
    beat = moment(holder.get("beat_at")) if holder else None
    if beat is not None and case.now - beat > SILENT:
        ends = moment(case.job.get("visible_at"))
        when = f" in {span(ends - case.now)}" if ends is not None and ends > case.now else " now"
        return Explanation(
            f"{sentence} That worker was last heard of {span(case.now - beat)} ago; its lease ends{when}.{_rescued(case)}",
            what_to_do=["Nothing: if it is gone, the job is given to another worker when the lease has ended."],
        )
    heard = f" The worker was last heard of {span(case.now - beat)} ago." if beat is not None else ""
    return Explanation(
        f"{sentence}{heard}{_rescued(case)}",
        what_to_do=[f"`paddock jobs watch {case.job['id']}` follows it; `paddock jobs logs` shows what it says."],
    )


def _submitted(case: _Case) -> Explanation:
    since = f" for {span(case.since('submitted_at'))}" if case.job.get("submitted_at") else ""
    sentence = f"{case.name} handed its work to {case.job.get('waiting_on')} and has waited for it{since}."
    if _nobody_offers(case):
        return Explanation(
            f"{sentence} No live worker offers the kind '{case.job['kind']}', so nobody looks whether that has ended.",
            what_to_do=[f"Start a worker that has it: `paddock worker --kinds {case.job['kind']}`."],
        )
    last = _last(case.timeline, "retry")
    trouble = f" The last look failed: {_error(case.job)}" if case.job.get("error_message") and last is not None else ""
    look = f" The next look is in {span(case.due_in)}." if case.due_in > timedelta(0) else " It is looked at now."
    return Explanation(
        f"{sentence}{look}{trouble}",
        what_to_do=[f"`paddock jobs cancel {case.job['id']}` ends it, and what it waits for."],
    )


def _completed(case: _Case) -> Explanation:
    ran = f" after running for {span(timedelta(seconds=case.job.get('run_seconds') or 0))}"
    turns = case.job.get("turn_count") or 1
    inside = f" in {turns} turns" if turns > 1 else ""
    return Explanation(f"{case.name} completed{ran}{inside}.{_rescued(case)}{_forgiven(case)}")


def _failed(case: _Case) -> Explanation:
    code = case.job.get("error_code")
    sentence = f"{case.name} failed: {_error(case.job)}"
    if code == "worker_lost":
        sentence += _rescued(case)
    elif case.job.get("failure_count"):
        sentence += f" It had failed {_times(case.job['failure_count'])} before."
    return Explanation(sentence, what_to_do=[*_failure_advice(case, str(code)), *_again(case)])


ADVICE: Mapping[str, str] = {
    "worker_lost": "Look whether it is the job that ends its workers (memory is the usual reason) before trying again.",
    "attempts_exhausted": "Mend what the last error names before trying again.",
    "timed_out": "It took longer than its kind allows: make the work smaller, or raise the kind's total time-out.",
    "turn_timeout": "One turn took longer than its kind allows: make the work smaller, or raise the kind's turn time-out.",
    "stalled": "It saved no progress for longer than its kind allows: look at its log for where it stood still.",
    "invalid_payload": "The payload is not what its kind takes: submit a new job with a corrected one.",
    "invalid_result": "Its handler returned something that cannot be stored; this is for whoever wrote the kind.",
    "unclassified_error": "Its handler raised an exception nobody expected; the traceback is in `paddock jobs show -o json`.",
}


def _failure_advice(case: _Case, code: str) -> list[str]:
    told = _hint_of_errors(case.job)
    if code in ADVICE:
        told.append(ADVICE[code])
    return told or [f"`paddock jobs logs {case.job['id']}` shows what it said before."]


def _cancelled(case: _Case) -> Explanation:
    entry = _last(case.timeline, "cancelled")
    by = (entry or {}).get("actor")
    reason = (entry or {}).get("reason")
    told = f"{case.name} was cancelled by {by}" if by else f"{case.name} was cancelled"
    told += f": {str(reason).rstrip('.')}." if reason else ", who gave no reason." if by else "."
    before = " It had never run." if not case.job.get("turn_count") else ""
    return Explanation(f"{told}{before}", what_to_do=_again(case))


EXPLAINERS: Mapping[str, Callable[[_Case], Explanation]] = {
    "pending": _pending,
    "claimed": _claimed,
    "submitted": _submitted,
    "completed": _completed,
    "failed": _failed,
    "cancelled": _cancelled,
}


def _again(case: _Case) -> list[str]:
    if case.job.get("retried_by"):
        return [f"It was retried already, as {case.job['retried_by']}."]
    if case.job.get("cleanup_of") is not None:
        return []
    drained = ((case.state or {}).get("drain") or {}).get("enabled")
    later = " once new work is accepted again (`paddock drain off`)" if drained else ""
    return [f"`paddock jobs retry {case.job['id']}` runs it again as a new job{later}."]


def _rescued(case: _Case) -> str:
    """How often a worker was lost under it."""
    lost = [entry for entry in case.timeline if entry.get("event") in ("rescued", "worker_lost")]
    n = max(len(lost), case.job.get("lost_count") or 0)
    if n == 0:
        return ""
    names = list(dict.fromkeys(str(entry["worker"]) for entry in lost if entry.get("worker")))
    who = f" ({', '.join(names[-3:])})" if names else ""
    if n == 1:
        return f" Once its worker was lost{who} and it was given to another."
    return f" Its worker was lost {_times(n)}{who}; each time it was given to another."


def _forgiven(case: _Case) -> str:
    retries = [entry for entry in case.timeline if entry.get("event") == "retry"]
    if not retries:
        return ""
    return f" It failed {_times(len(retries))} on the way and was tried again; last with: {_reason(retries[-1])}."


def _progress(job: Facts) -> str:
    report = job.get("report") or {}
    told = [
        f"{report['percent']:g} %" if isinstance(report.get("percent"), int | float) else None,
        str(report["phase"]) if report.get("phase") else None,
        f"{report['rows']:,} rows" if isinstance(report.get("rows"), int) else None,
        f"about {span(timedelta(seconds=report['eta_seconds']))} left"
        if isinstance(report.get("eta_seconds"), int | float)
        else None,
    ]
    shown = ", ".join(part for part in told if part)
    return f" and last reported {shown}" if shown else ""


def _error(job: Facts) -> str:
    message = str(job.get("error_message") or "no message").strip()
    code = f" [{job['error_code']}]" if job.get("error_code") else ""
    return f"{message}{'' if message.endswith(('.', '!', '?')) else '.'}{code}"


def _hint(entry: Facts | None) -> list[str]:
    hint = ((entry or {}).get("error") or {}).get("hint")
    return [str(hint)] if hint else []


def _hint_of_errors(job: Facts) -> list[str]:
    errors = job.get("errors") or []
    hint = errors[-1].get("hint") if errors else None
    return [str(hint)] if hint else []


def _last(timeline: Sequence[Facts], event: str) -> Facts | None:
    return next((entry for entry in reversed(timeline) if entry.get("event") == event), None)


def _reason(entry: Facts) -> str:
    error = entry.get("error") or {}
    return str(error.get("message") or entry.get("reason") or error.get("code") or "no reason given").rstrip(".")


def steps(timeline: Sequence[Facts]) -> list[Step]:
    return [Step(str(entry.get("at")), _step(entry)) for entry in timeline]


def _step(entry: Facts) -> str:
    worker = entry.get("worker") or "a worker"
    by = f" by {entry['actor']}" if entry.get("actor") else ""
    reason = f" ({entry['reason']})" if entry.get("reason") else ""
    back = "waits outside" if entry.get("to") == "submitted" else "waits"
    texts = {
        "enqueued": f"asked for{by}",
        "claimed": f"taken by {worker}",
        "yielded": f"ended {entry.get('count', 1)} turn{_s(entry.get('count', 1))} to go on later",
        "retry": f"failed on {worker}: {_reason(entry)}; {back} to be tried again",
        "released": f"given back by {worker}{reason}",
        "rescued": f"{worker} was lost; given back",
        "worker_lost": f"{worker} was lost; not to be repeated",
        "cancelled": f"cancelled{by}{reason}",
        "timed_out": f"ended for taking too long{reason}",
        "stale_write": f"a late write was refused{reason}",
        "run_now": f"made due at once{by}",
        "completed": f"completed on {worker}",
        "failed": f"failed on {worker}: {_reason(entry)}",
    }
    event = str(entry.get("event"))
    return texts.get(event, f"{event.replace('_', ' ')}{by}{reason}")


def moment(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) and value else None
    except ValueError:
        return None  # infinity


def span(length: timedelta) -> str:
    seconds = max(0.0, length.total_seconds())
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def _times(n: int) -> str:
    return {1: "once", 2: "twice"}.get(n, f"{n} times")


def _s(n: int) -> str:
    return "" if n == 1 else "s"
