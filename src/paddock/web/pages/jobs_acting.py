"""What is done to jobs from their list: to one, to those selected, or to all that match, which is a job of its own."""

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError
from paddock.api.idempotency import key_of
from paddock.api.parts import no_parts_of
from paddock.api.services.changing import act_on_matching, count_matching
from paddock.api.services.submitting import check_retry
from paddock.api.tokens import Caller
from paddock.jobs import bulk, reading
from paddock.jobs.acting import audit_many
from paddock.jobs.errors import Draining, Refused
from paddock.jobs.model import Job, JobId
from paddock.web import job_filters
from paddock.web.frame import back, field, form, page, plane_of, render, url_of
from paddock.web.job_filters import JobListRequest, here, path_back
from paddock.web.words import machine, number, plural

MOST_SELECTED = 200
EVERY_HINT = "Say that you mean every job, or narrow the list first."
FROM_HERE = "from the dashboard"

DONE: Mapping[str, tuple[str, str]] = {
    "cancel": ("was cancelled", "were cancelled"),
    "retry": ("runs again as a new job", "run again as new jobs"),
    "run-now": ("is due now", "are due now"),
}
# Why a job was left as it is, by the core's words for it.
LEFT: Mapping[str, str] = {
    "finished": "had ended already",
    "cleanup": "is a cleanup, which ends by itself",
    "not_retriable": "is a cleanup, which is retried by itself",
    "unknown": "is gone",
    "not_found": "is gone",
    "already_retried": "was retried already",
    "not_finished": "has not ended",
    "not_waiting": "does not wait for its time",
    "engine_role_not_allowed": "ran under an engine role that you may not use",
    "explicit_snapshots_off": "belongs to a snapshot, which is not touched by hand here",
    "group_finished": "belongs to a group that has finished",
    "lock_held": "needs a lock that another job holds",
    "draining": "would be new work, which drain mode refuses",
}


def routes() -> list[Route]:
    return [
        form("/jobs/selected", act_on_selected, PEOPLE),
        page("/jobs/cancel", partial(ask_about_all, "cancel"), PEOPLE),
        form("/jobs/cancel", partial(act_on_all, "cancel"), PEOPLE),
        page("/jobs/retry", partial(ask_about_all, "retry"), PEOPLE),
        form("/jobs/retry", partial(act_on_all, "retry"), PEOPLE),
    ]


async def act_on_selected(request: Request, caller: Caller) -> Response:
    """`one` is the button of a row, `do` one for the rows that are ticked."""
    action, ids = await _chosen(request)
    plane = plane_of(request)
    jobs = [job for job in await reading.jobs(plane.core.db, ids) if caller.sees(job.owner)]
    reason = await field(request, "reason") or FROM_HERE
    left: Counter[str] = Counter({"unknown": len(ids) - len(jobs)})
    if action == "cancel":
        left += await _cancel(request, caller, jobs, reason)
    else:
        left += await _one_by_one(request, caller, action, jobs, reason)
    left = +left
    done = len(ids) - left.total()
    if not done:
        raise ApiError(409, "nothing_changed", f"Nothing was changed: {_left_words(left)}.")
    said = f"{plural(done, 'job')} {DONE[action][done != 1]}."
    return back(request, path_back(await field(request, "from")), f"{said} {_left_words(left)}." if left else said)


async def _chosen(request: Request) -> tuple[str, list[JobId]]:
    sent = await request.form()
    action, _, one = (await field(request, "one")).partition(" ")
    texts = [one] if one else [text for text in sent.getlist("id") if isinstance(text, str)]
    action = action or await field(request, "do")
    try:
        ids = list(dict.fromkeys(JobId(UUID(text)) for text in texts))
    except ValueError:
        ids = []
    if action not in DONE or not ids:
        raise ApiError(422, "nothing_chosen", "Nothing was chosen, or it has changed meanwhile; nothing was done.")
    if len(ids) > MOST_SELECTED:
        raise ApiError(422, "too_many", f"No more than {MOST_SELECTED} jobs at once; use the action on all that match.")
    return action, ids


async def _cancel(request: Request, caller: Caller, jobs: Sequence[Job], reason: str) -> Counter[str]:
    plane = plane_of(request)
    barred = no_parts_of(plane.config, caller)
    free = [job.id for job in jobs if plane.core.kinds.part_of(job) not in barred]
    left = Counter({"explicit_snapshots_off": len(jobs) - len(free)})
    verdicts = await plane.core.cancel(free, actor=caller.actor, reason=reason) if free else {}
    return left + Counter(verdict for verdict in verdicts.values() if verdict != "cancelled")


async def _one_by_one(request: Request, caller: Caller, action: str, jobs: Sequence[Job], reason: str) -> Counter[str]:
    """One that is refused stops none of the others; drain mode stops all that are left."""
    core, left = plane_of(request).core, Counter[str]()
    alone, done = len(jobs) == 1, list[JobId]()
    try:
        for place, job in enumerate(jobs):
            try:
                if action == "run-now":
                    await core.run_now(job.id, actor=caller.actor, audited=alone)
                else:
                    check_retry(plane_of(request), caller, job)
                    await core.retry(job.id, actor=caller.actor, reason=reason, audited=alone)
                done.append(job.id)
            except Draining:
                if not place:
                    raise
                left["draining"] += len(jobs) - place
                break
            except (Refused, ApiError) as refused:
                left[refused.code if refused.code in LEFT else refused.message] += 1
    finally:
        # Whatever stopped it, what was done is in the audit log.
        if not alone:
            async with core.db.transaction() as tx:
                await audit_many(tx, caller.actor, action.replace("-", "_"), done, reason)
    return left


def _left_words(left: Counter[str]) -> str:
    return "; ".join(f"{plural(count, 'job')} left: {LEFT.get(why, why.rstrip('.'))}" for why, count in left.items())


async def ask_about_all(action: bulk.Action, request: Request, caller: Caller) -> Response:
    """How many match, and what will happen to them. What is then sent is what was counted: both ends are frozen."""
    plane = plane_of(request)
    now = await reading.clock(plane.core.db)
    asked = job_filters.read(request.query_params.multi_items(), caller, now)
    if asked.filter is None:
        return RedirectResponse(url_of(request, "/jobs", **asked.query), 303)  # where it is said what is wrong
    until = now if asked.filter.until is None else min(now, asked.filter.until)
    frozen = {**asked.query, "until": machine(until)}
    if asked.filter.since is not None:
        frozen["since"] = machine(asked.filter.since)
    count = await count_matching(plane, caller, action, replace(asked.filter, until=until))
    return await render(
        request,
        caller,
        "jobs_matching.html",
        action=action,
        asked=asked,
        frozen=frozen,
        here_query=here(asked.query),
        count=count,
        counted=_counted(count),
        key=secrets.token_hex(16),
    )


def _counted(count: reading.Count) -> str:
    if not count.n:
        return "all"
    return f"{number(count.n)}+" if count.more else number(count.n)


async def act_on_all(action: bulk.Action, request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    sent = await request.form()
    asked = job_filters.read(sent.multi_items(), caller, await reading.clock(plane.core.db))
    if asked.filter is None:
        raise ApiError(422, "invalid_filter", " ".join(asked.problems.values()))
    meant = await field(request, "all") == "yes"
    if asked.every and not meant:
        raise ApiError(422, "empty_filter", f"No filter narrows this: it would {action} every job.", hint=EVERY_HINT)
    reason = await field(request, "reason") or FROM_HERE
    # Sent twice (a reload, the way back) it is one job all the same.
    key = key_of(caller, f"POST /jobs/{action}", await field(request, "key") or None, _body(asked, reason))
    job = await act_on_matching(plane, caller, action, asked.filter, all_jobs=meant, reason=reason, idempotency=key)
    return back(request, path_back(await field(request, "from"), bulk=job.id))


def _body(asked: JobListRequest, reason: str) -> dict[str, Any]:
    return {"filter": dict(asked.query), "reason": reason}
