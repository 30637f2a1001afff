"""The handlers of maintenance: the actions of a job one after the other, each with its outcome saved.

A kill on any line leaves a table with all its rows and refs. It may leave the fence tag, which the next attempt or the cleanup
takes away, and files that no snapshot names, which are orphans.
"""

import time
from collections.abc import Callable, Mapping

from pyiceberg.table import Table

from paddock.engines.rewriting import Rewriter
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, StaleAttempt
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Again, done
from paddock.jobs.outcomes import Outcome as TurnOutcome
from paddock.jobs.turn import Turn
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import committing, expiring, manifesting, orphans, rewriting
from paddock.maintenance.iceberg.opening import GONE, open_catalog, refuse_managed_store, said, summary_of, translate
from paddock.maintenance.iceberg.planning import check_engine
from paddock.maintenance.iceberg.working import Work, is_lasting
from paddock.maintenance.model import ACTIONS, REWRITES, Action, MaintenancePayload, Outcome
from paddock.maintenance.remote import rewriting as remote
from paddock.maintenance.remote.aftermath import ours

Run = Callable[[Work], Outcome]


def maintain(
    turn: Turn[MaintenancePayload],
    settings: CatalogSettings,
    rewriter: Rewriter | None = None,
    managed_store: str = "",
) -> TurnOutcome:
    """`rewriter` is who rewrites; without one we do. `managed_store` is Paddock's own: no table may lie there."""
    payload = turn.payload
    work = Work(turn, settings, open_catalog(payload.table.catalog, settings))
    table = work.load()
    refuse_managed_store(table, managed_store)
    if "main" not in table.metadata.refs:
        for action in _due(work):
            work.ended(Outcome(action=action, outcome="skipped", message="The table has no snapshot yet."))
        return done(_result(work))
    if any(action in REWRITES for action in _due(work)):
        check_engine(table, settings.engine_type)
    if payload.dry_run:
        return done(_planned(work, table, rewriter))
    # Before the fence, which is a commit: an engine that is away is asked every half minute.
    if work.state["remote"] is not None and isinstance(later := remote.end_remote(work, rewriter), Again):
        return later
    work.turn_fence()
    if work.state["remote"] is not None:
        _take_what_landed(work)
    for action in _due(work):
        _run(work, action, rewriter)
    work.remove_tag()
    _raise_first_failure(work)
    return done(_result(work))


def _due(work: Work) -> list[Action]:
    """In the fixed order, without those that earlier attempts have ended."""
    ended = {each["action"] for each in work.state["outcomes"]}
    return [action for action in ACTIONS if action in work.payload.actions and action not in ended]


def _take_what_landed(work: Work) -> None:
    """What an earlier attempt had an engine do has ended: what it had done by then is done."""
    outcome, since = remote.landed(work, work.state["remote"])
    work.state["remote"] = None
    if ours(since):
        work.ended(outcome)
    else:
        work.save(progress=False)


def _run(work: Work, action: Action, rewriter: Rewriter | None) -> None:
    if (step := work.state["step"]) is None or step.get("action") != action:
        work.state["step"] = {"action": action}
    failed = [each["action"] for each in work.state["outcomes"] if each["outcome"] == "failed"]
    # Rows may be missing, or an engine may be at it still.
    doubtful = work.state["remote"] is not None or any(
        each.get("error") == remote.ROWS_DIFFER for each in work.state["outcomes"]
    )
    if failed and (doubtful or not (action == "expire_snapshots" and set(failed) <= REWRITES)):
        work.ended(Outcome(action=action, outcome="skipped", message=f"Not begun, because {failed[0]} failed."))
        return
    work.turn.report(phase=action.replace("_", " "))
    began = time.monotonic()
    try:
        outcome = _runs(action, rewriter)(work)
    except StaleAttempt:
        raise
    except Exception as problem:
        known = problem if isinstance(problem, InfrastructureError) else translate(problem, work.payload.table.catalog)
        if not is_lasting(known):
            raise known from problem
        work.turn.log.error("action_failed", action=action, problem=said(known))
        hint = {"hint": known.hint} if known.hint else {}
        outcome = Outcome(action=action, outcome="failed", message=known.message, error=known.code, details=hint)
    work.ended(outcome.model_copy(update={"elapsed_seconds": round(time.monotonic() - began, 3)}))


def _runs(action: Action, rewriter: Rewriter | None) -> Run:
    return RUNS[action] if rewriter is None or action not in REWRITES else remote.runs(rewriter, action)


def _planned(work: Work, table: Table, rewriter: Rewriter | None) -> JsonObject:
    """A dry run has no lock, no fence and no commit, and stands for one snapshot."""
    outcomes = [
        PLANS[action](work, table)
        if rewriter is None or action not in REWRITES
        else remote.plan(work, rewriter, action, table)
        for action in _due(work)
    ]
    return {
        "table": str(work.payload.table),
        "uuid": work.payload.uuid,
        "dry_run": True,
        "snapshot_id": table.metadata.current_snapshot_id,
        "outcomes": [outcome.json_object() for outcome in outcomes],
    }


def _folded(work: Work, table: Table | None = None) -> Outcome:
    return Outcome(
        action="rewrite_position_delete_files",
        outcome="skipped",
        message="Folded into rewrite_data_files, which applies position deletes.",
    )


def _raise_first_failure(work: Work) -> None:
    for each in work.state["outcomes"]:
        if each["outcome"] == "failed":
            raise PermanentRunnerError(
                f"{each['action']} of {work.payload.table} failed: {each['message']}",
                code=each["error"],
                hint=each.get("details", {}).get("hint"),
            )


def _result(work: Work) -> JsonObject:
    result = {"table": str(work.payload.table), "uuid": work.payload.uuid, "outcomes": work.state["outcomes"]}
    return result if work.fenced else {**result, "unfenced": True}


RUNS: Mapping[Action, Run] = {
    "rewrite_data_files": rewriting.rewrite_data_files,
    "rewrite_position_delete_files": _folded,
    "rewrite_manifests": manifesting.rewrite_manifests,
    "expire_snapshots": expiring.expire_snapshots,
    "remove_orphan_files": orphans.remove_orphan_files,
}

PLANS: Mapping[Action, Callable[[Work, Table], Outcome]] = {
    "rewrite_data_files": rewriting.plan,
    "rewrite_position_delete_files": _folded,
    "rewrite_manifests": manifesting.plan,
    "expire_snapshots": expiring.plan,
    "remove_orphan_files": orphans.plan,
}


def clean_up(
    turn: Turn[MaintenancePayload], settings: CatalogSettings, rewriter: Rewriter | None = None
) -> TurnOutcome:
    """After an end that was not `done`: what another engine is at ends, the fence tags go, and what landed is told. It holds the
    table's lock meanwhile."""
    payload = turn.payload
    outcomes, deleted = turn.saved.get("outcomes", []), (turn.saved.get("step") or {}).get("deleted_files", 0)
    aftermath: JsonObject = {"outcomes": outcomes, "deleted_files": deleted, "snapshots": []}
    if payload.dry_run:
        return done(aftermath)
    work = Work(turn, settings, open_catalog(payload.table.catalog, settings))
    if work.state["remote"] is not None:
        ended = remote.end_remote(work, rewriter)
        if isinstance(ended, Again):
            return ended
        aftermath["remote"] = {"engine": work.state["remote"]["engine"], "ended": ended}
    try:
        work.load()
    except PermanentRunnerError as gone:
        return done({**aftermath, "note": gone.message})
    try:
        return done(_after_its_end(work, aftermath))
    except PermanentRunnerError as gone:
        if gone.code not in GONE:
            raise
        return done({**aftermath, "note": gone.message})


def _after_its_end(work: Work, aftermath: JsonObject) -> JsonObject:
    expired = (work.state["step"] or {}).get("expire") is not None
    cut_short: list[Outcome | None] = []
    if expired or work.state["remote"] is not None:
        # What is mended here is mended under a fence of the cleanup's own; and nothing late lands after it was looked for.
        work.turn_fence()
    if expired:
        cut_short.append(expiring.end_cut_short(work))
    if work.state["remote"] is not None:
        outcome, since = remote.landed(work, work.state["remote"])
        aftermath["remote"].update(
            message=outcome.message, error=outcome.error, snapshots=[each.json_object() for each in since]
        )
        if outcome.outcome != "skipped":
            cut_short.append(outcome)
    work.retried(lambda table: committing.remove_tags(work.catalog, table, committing.fence_tags(table.metadata)))
    # Only now, when nothing more can land.
    aftermath["snapshots"] = _landed(work.load(), str(work.turn.cleanup_of))
    told = [each for each in [*cut_short, _rewrite_cut_short(aftermath)] if each is not None]
    for each in told:
        for alarm in each.alarms:
            work.turn.log.error(each.message or alarm, alarm=alarm, table=str(work.payload.table))
    return {**aftermath, **({"cut_short": [each.json_object() for each in told]} if told else {})}


def _rewrite_cut_short(aftermath: JsonObject) -> Outcome | None:
    """Of the action that was under way: the commits that it had made."""
    ended = {each["action"] for each in aftermath["outcomes"]}
    landed = [each for each in aftermath["snapshots"] if each["action"] in REWRITES - ended]
    if not landed:
        return None
    return Outcome(
        action=landed[0]["action"],
        outcome="failed",
        error=expiring.CUT_SHORT,
        message=f"The job ended before this action did; {len(landed):,} of its commits had landed.",
        details={"snapshots": [each["snapshot_id"] for each in landed]},
    )


def _landed(table: Table, job: str) -> list[JsonObject]:
    return [
        {"snapshot_id": snapshot.snapshot_id, "action": summary_of(snapshot).get("paddock.action")}
        for snapshot in table.metadata.snapshots
        if summary_of(snapshot).get("paddock.job-id") == job
    ]
