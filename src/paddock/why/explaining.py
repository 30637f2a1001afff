"""Where a job stands and why, and what to do about it: a pure function over what the API answers.

One explainer for each status. Nobody has to search the sentences: what a page shows in a way of its own is a part.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from paddock.jobs.reports import how_far, share
from paddock.why.case import SILENT, Case, Facts, reason
from paddock.why.steps import Step, steps
from paddock.why.words import Part, Place, Quote, Words, moment, plain, s, since, span, times, until

LONG_WAIT = timedelta(minutes=1)
# How the core says "when the old attempt has stopped": a time that never comes by itself.
NEVER = 9999
LONGEST_LINE = 200


@dataclass(frozen=True)
class Explanation:
    """`told`: where it stands and why. `advice`: nothing, or one sentence for each thing that helps."""

    told: Words
    advice: list[Words] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        return plain(self.told)

    @property
    def what_to_do(self) -> list[str]:
        return [plain(words) for words in self.advice]


def explain(
    job: Facts,
    timeline: Sequence[Facts] = (),
    kinds: Sequence[Facts] | None = None,
    workers: Sequence[Facts] | None = None,
    state: Facts | None = None,
    *,
    ordered: Facts | None = None,
    around: Sequence[Facts] = (),
    now: datetime | None = None,
) -> Explanation:
    """`around` is what is to be said of the whole that the job is part of, as `/api/jobs/{id}/around` answers it."""
    kind = next((seen for seen in kinds or () if seen["name"] == job["kind"]), None)
    case = Case(job, timeline, kind, workers, state, now or datetime.now(UTC), ordered)
    told = EXPLAINERS[str(job["status"])](case)
    beside: Words = tuple(part for one in around for part in (" ", Quote(str(one["sentence"]))))
    advice: list[Words] = [(str(sentence),) for one in around for sentence in one["what_to_do"]]
    return Explanation((*told.told, *beside), [*told.advice, *advice], steps(timeline))


def _explanation(*told: Part, advice: Sequence[Words | str] = ()) -> Explanation:
    return Explanation(told, [(words,) if isinstance(words, str) else words for words in advice])


def _pending(case: Case) -> Explanation:
    if _waits_for_attempt(case):
        return _explanation(
            f"{case.name} waits until the attempt it cleans up after has stopped, or that attempt's worker is gone.",
            advice=["Nothing: it becomes due by itself, at the latest when that worker's lease ends."],
        )
    if case.due_in > timedelta(0):
        return _not_due(case)
    return _due(case)


def _waits_for_attempt(case: Case) -> bool:
    due = str(case.job.get("due_at") or "")
    return case.job.get("cleanup_of") is not None and (due.startswith(str(NEVER)) or due == "infinity")


def _not_due(case: Case) -> Explanation:
    when: Words = (f"{case.job.get('due_at') or case.job.get('visible_at')} (", until(case.due_at, case.now), ")")
    run_now: Words = (Place("run_now", f"`paddock jobs run-now {case.job['id']}`"), " makes it due at once.")
    failures = (case.job.get("failure_count") or 0) + (case.job.get("cluster_count") or 0)
    if failures and case.job.get("error_message"):
        return _explanation(
            f"{case.name} failed {times(failures)}{_limit(case)} and tries again at ",
            *when,
            ". The last error was: ",
            *case.error,
            advice=[*_hint(case.last("retry")), ("If the cause is fixed already, ", *run_now)],
        )
    released = case.last("released")
    if released is not None and case.job.get("turn_count"):
        back = f"{case.name} was given back ({reason(released)}) and is due at "
        return _explanation(back, *when, ".", advice=[run_now])
    if case.job.get("turn_count"):
        return _explanation(f"{case.name} ended a turn and goes on at ", *when, ".", advice=[run_now])
    return _explanation(f"{case.name} is not due yet: it may run from ", *when, ".", advice=[run_now])


def _limit(case: Case) -> str:
    limit = ((case.kind or {}).get("retry") or {}).get("limit")
    return "" if limit is None or case.job.get("cluster_count") else f" of {limit} that are forgiven"


def _due(case: Case) -> Explanation:
    name = case.job["kind"]
    waits: Words = (f"{case.name} has been due for ", since(case.due_at, case.now))
    rescued = _rescued(case)
    if case.kind is not None and case.kind.get("paused") and case.job.get("cleanup_of") is None:
        by = case.kind.get("paused_by") or "somebody"
        given = f" ({case.kind['pause_reason']})" if case.kind.get("pause_reason") else ""
        return _explanation(
            *waits,
            f", but {by} paused its kind '{name}'{given}: nothing new of it is claimed.{rescued}",
            advice=[f"`paddock kinds resume {name}` lets it run."],
        )
    if _nobody_offers(case) and _scaler_comes(case):
        return _explanation(
            *waits,
            f", and no worker for '{name}' runs now: the scaler brings one.{rescued}",
            advice=["Nothing: a worker comes within two minutes."],
        )
    if _nobody_offers(case):
        return _explanation(
            *waits,
            f", but no live worker offers the kind '{name}'.{rescued}",
            advice=[f"Start a worker that has it: `paddock worker --kinds {name}`.", *_live_worker_words(case)],
        )
    offering = case.offering
    if offering and all(worker.get("quiet") or worker.get("dying") for worker in offering):
        return _explanation(
            *waits,
            f", but every worker that offers '{name}' is set to claim nothing new.{rescued}",
            advice=["`paddock workers quiet --off WORKER` lets one claim again, or start another worker."],
        )
    if case.kind is not None and case.kind.get("serial") and case.kind.get("claimed"):
        return _explanation(
            *waits,
            f". Only one job of kind '{name}' runs at a time, and another one does now.{rescued}",
            advice=[f"`paddock jobs list --kind {name} --status claimed` shows which."],
        )
    return _in_line(case, waits, rescued)


def _nobody_offers(case: Case) -> bool:
    offering = case.offering
    if case.kind is not None and case.kind.get("internal"):
        return False
    if offering is not None:
        return not offering
    return case.kind is not None and case.kind.get("offered") is False


def _scaler_comes(case: Case) -> bool:
    return case.kind is not None and bool(case.kind.get("scaled")) and not case.kind.get("unoffered")


def _live_worker_words(case: Case) -> list[str]:
    live = [worker for worker in case.workers or () if worker.get("live", True)]
    if not live:
        return []
    return [f"{len(live)} live worker{s(len(live))} offer{'s' if len(live) == 1 else ''} other kinds only."]


def _in_line(case: Case, waits: Words, rescued: str) -> Explanation:
    others = max(0, ((case.kind or {}).get("pending") or 0) - 1)
    busy = ""
    if case.offering:
        running = sum(worker.get("running") or 0 for worker in case.offering)
        slots = sum(worker.get("slots") or 0 for worker in case.offering)
        n = len(case.offering)
        busy = f" {n} worker{s(n)} offer{'s' if n == 1 else ''} it, with {running} of {slots} slots taken."
    behind = f", behind or beside {others:,} other{s(others)} of its kind" if others else ""
    advice = []
    if -case.due_in > LONG_WAIT:
        advice = ["Start more workers, or raise their concurrency; `paddock workers list` shows how busy they are."]
    elif not others:
        advice = ["Nothing: a free worker takes it in a moment."]
    return _explanation(*waits, f"{behind}.{busy}{rescued}", advice=advice)


def _claimed(case: Case) -> Explanation:
    worker = case.job.get("claimed_by") or "a worker"
    running: Words = (
        f"{case.name} has been running on {worker} for ",
        since(case.time("claimed_at") or case.now, case.now),
        f"{_progress(case.job)}.",
    )
    holder = next(
        (seen for seen in case.workers or () if str(seen.get("session")) == str(case.job.get("session_id"))), None
    )
    beat = moment(holder.get("beat_at")) if holder else None
    if beat is not None and case.now - beat > SILENT:
        ends = case.time("visible_at")
        return _explanation(
            *running,
            " That worker was last heard of ",
            since(beat, case.now),
            " ago; its lease ends ",
            until(ends, case.now) if ends is not None and ends > case.now else "now",
            f".{_rescued(case)}",
            advice=["Nothing: if it is gone, the job is given to another worker when the lease has ended."],
        )
    heard: Words = () if beat is None else (" The worker was last heard of ", since(beat, case.now), " ago.")
    watch = f"`paddock jobs watch {case.job['id']}` follows it; `paddock jobs logs` shows what it says."
    return _explanation(*running, *heard, _rescued(case), advice=[(Place("watch", watch),)])


def _submitted(case: Case) -> Explanation:
    at = case.time("submitted_at")
    waits: Words = (
        f"{case.name} handed its work to {case.job.get('waiting_on')} and has waited for it",
        *(() if at is None else (" for ", since(at, case.now))),
        ".",
    )
    if _nobody_offers(case) and not _scaler_comes(case):
        return _explanation(
            *waits,
            f" No live worker offers the kind '{case.job['kind']}', so nobody looks whether that has ended.",
            advice=[f"Start a worker that has it: `paddock worker --kinds {case.job['kind']}`."],
        )
    failed = case.job.get("error_message") and case.last("retry") is not None
    trouble: Words = (" The last look failed: ", *case.error) if failed else ()
    look: Words = (" The next look is ", until(case.due_at, case.now), ".")
    return _explanation(
        *waits,
        *(look if case.due_in > timedelta(0) else (" It is looked at now.",)),
        *trouble,
        advice=[(Place("cancel", f"`paddock jobs cancel {case.job['id']}`"), " ends it, and what it waits for.")],
    )


def _completed(case: Case) -> Explanation:
    ran = f" after running for {span(timedelta(seconds=case.job.get('run_seconds') or 0))}"
    turns = case.job.get("turn_count") or 1
    inside = f" in {turns} turns" if turns > 1 else ""
    told: Words = (f"{case.name} completed{ran}{inside}.{_rescued(case)}", *_forgiven(case))
    return _explanation(*told) if case.ordered is None else _of_ordered(case.ordered, told)


def _of_ordered(job: Facts, told: Words) -> Explanation:
    """It has done its own part, which says nothing about the work it ordered."""
    status, work = job["status"], f"the {job['kind']} job it made"
    advice: list[Words] = [(Place("ordered", f"`paddock why {job['id']}` tells more."),)]
    if status == "failed":
        error = Case(job, (), None, None, None, datetime.now(UTC)).error
        return _explanation(*told, f" But {work} failed: ", *error, advice=advice)
    if status in ("completed", "cancelled"):
        return _explanation(*told, f" And {work} {'completed' if status == 'completed' else 'was cancelled'}.")
    return _explanation(*told, f" What it ordered has not ended: {work} is {status}.", advice=advice)


def _failed(case: Case) -> Explanation:
    code = str(case.job.get("error_code"))
    before = ""
    if code == "worker_lost":
        before = _rescued(case)
    elif case.job.get("failure_count"):
        before = f" It had failed {times(case.job['failure_count'])} before."
    advice = [*_failure_advice(case, code), *_again(case)]
    return _explanation(f"{case.name} failed: ", *case.error, before, advice=advice)


ADVICE: Mapping[str, str | Words] = {
    "worker_lost": "Look whether it is the job that ends its workers (memory is the usual reason) before trying again.",
    "attempts_exhausted": "Fix what the last error names before trying again.",
    "timed_out": "It took longer than its kind allows: make the work smaller, or raise the kind's total time-out.",
    "turn_timeout": "One turn took longer than its kind allows: make the work smaller, or raise the kind's turn time-out.",
    "stalled": "It saved no progress for longer than its kind allows: look at its log for where it stopped.",
    "invalid_payload": "The payload is not what its kind takes: submit a new job with a corrected one.",
    "invalid_result": "Its handler returned something that cannot be stored; this is for whoever wrote the kind.",
    "unclassified_error": (
        "Its handler raised an exception nobody expected; the traceback is ",
        Place("traceback", "in `paddock jobs show -o json`"),
        ".",
    ),
}


def _failure_advice(case: Case, code: str) -> list[str | Words]:
    told: list[str | Words] = [*_place_of_errors(case.job), *_hint_of_errors(case.job)]
    if code in ADVICE:
        told.append(ADVICE[code])
    return told or [(Place("log", f"`paddock jobs logs {case.job['id']}`"), " shows what it said before.")]


def _cancelled(case: Case) -> Explanation:
    entry = case.last("cancelled") or {}
    by, given = entry.get("actor"), entry.get("reason")
    told = f"{case.name} was cancelled by {by}" if by else f"{case.name} was cancelled"
    told += f": {str(given).rstrip('.')}." if given else ", who gave no reason." if by else "."
    before = " It had never run." if not case.job.get("turn_count") else ""
    return _explanation(f"{told}{before}", advice=_again(case))


EXPLAINERS: Mapping[str, Callable[[Case], Explanation]] = {
    "pending": _pending,
    "claimed": _claimed,
    "submitted": _submitted,
    "completed": _completed,
    "failed": _failed,
    "cancelled": _cancelled,
}


def _again(case: Case) -> list[Words]:
    if case.job.get("retried_by"):
        return [(Place("retried", f"It was retried already, as {case.job['retried_by']}."),)]
    if case.job.get("cleanup_of") is not None:
        return []
    drained = ((case.state or {}).get("drain") or {}).get("enabled")
    later = " once new work is accepted again (`paddock drain off`)" if drained else ""
    return [(Place("retry", f"`paddock jobs retry {case.job['id']}`"), f" runs it again as a new job{later}.")]


def _rescued(case: Case) -> str:
    """How often a worker was lost under it and another got it."""
    lost = [entry for entry in case.timeline if entry.get("event") == "rescued"]
    n = max(len(lost), case.job.get("lost_count") or 0)
    if n == 0:
        return ""
    names = list(dict.fromkeys(str(entry["worker"]) for entry in lost if entry.get("worker")))
    who = f" ({', '.join(names[-3:])})" if names else ""
    if n == 1:
        return f" Once its worker was lost{who} and it was given to another."
    return f" Its worker was lost {times(n)}{who}; each time it was given to another."


def _forgiven(case: Case) -> Words:
    retries = [entry for entry in case.timeline if entry.get("event") == "retry"]
    if not retries:
        return ()
    failed = f" It failed {times(len(retries))} on the way and was tried again; last with: "
    return (failed, Quote(reason(retries[-1])), ".")


def _progress(job: Facts) -> str:
    known = how_far(job.get("report"))
    rows, left = known.amounts.get("rows"), known.left_seconds
    parts = [
        share(known.percent),
        known.phase,
        None if rows is None else f"{rows:,.0f} rows",
        None if left is None else f"about {span(timedelta(seconds=left))} left",
    ]
    shown = ", ".join(part for part in parts if part)
    return f" and last reported {shown}" if shown else ""


def _hint(entry: Facts | None) -> list[str]:
    hint = ((entry or {}).get("error") or {}).get("hint")
    return [str(hint)] if hint else []


def _hint_of_errors(job: Facts) -> list[str]:
    errors = job.get("errors") or []
    hint = errors[-1].get("hint") if errors else None
    return [str(hint)] if hint else []


def _place_of_errors(job: Facts) -> list[str | Words]:
    """What to change in a query that was refused: the line with the error in it, as it was asked."""
    last = (job.get("errors") or [{}])[-1]
    line, column, sql = last.get("line"), last.get("column"), (job.get("payload") or {}).get("sql")
    lines = sql.split("\n") if isinstance(sql, str) else []
    if not isinstance(line, int) or not 1 <= line <= len(lines):
        return []
    at = f", at column {column}" if isinstance(column, int) else ""
    text = lines[line - 1].strip()[:LONGEST_LINE]
    return [(f"Change line {line} of its query{at}: ", Quote(text), " Then make a new one: a retry asks the same.")]
