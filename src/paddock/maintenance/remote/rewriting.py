"""One rewrite by another engine, and the end of one that somebody else began.

What ends the statement is saved, fenced, before it runs: whoever lost the job by then sends nothing, and whoever has it next ends
what ran. Nobody attaches to it again. What landed is read from the table, never from the engine's words.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from paddock.amounts import several
from paddock.amounts import size as in_words
from paddock.engines.rewriting import Rewriter
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Again, again
from paddock.maintenance.iceberg import committing
from paddock.maintenance.iceberg.looking import figures_of
from paddock.maintenance.iceberg.opening import translated
from paddock.maintenance.iceberg.working import Work
from paddock.maintenance.model import KEEP_PREFIX, Action, Outcome
from paddock.maintenance.policy import policy_of
from paddock.maintenance.remote.aftermath import Since, differing, made_since, number_of, ours
from paddock.maintenance.remote.statements import ignored_options, statement_for

# The engine ends the statement itself after this.
LIMIT = timedelta(hours=4)
# Past it, who cannot be reached is taken for ended.
BEYOND_LIMIT = timedelta(minutes=5)
ASK_AGAIN = timedelta(seconds=30)
UNREACHABLE = "stopping, engine unreachable"
STOPPING = "stopping"
ROWS_DIFFER = "rows_differ"
# What a failure of the engine asks of people, where its own hint is for those who export.
HINTS = {
    "role_denied": "Grant the login of the engine the right to change this table.",
    "exceeded_time_limit": "Rewrite it on a larger cluster, or in parts by embedded rewrites, which `max_bytes` bounds.",
    "invalid_session_property": "Is `engine_catalog` of this catalog the engine's own name for it?",
    "catalog_not_found": "Is `engine_catalog` of this catalog the engine's own name for it?",
    "schema_not_found": "Is `engine_catalog` of this catalog the engine's own name for it?",
    "table_not_found": "Is `engine_catalog` of this catalog the engine's own name for it?",
    "table_or_view_not_found": "Is `engine_catalog` of this catalog the engine's own name for it?",
}


def runs(rewriter: Rewriter, action: Action) -> Callable[[Work], Outcome]:
    return lambda work: rewrite(work, rewriter, action)


def rewrite(work: Work, rewriter: Rewriter, action: Action) -> Outcome:
    table = work.load()
    policy = policy_of(table.metadata.properties, work.settings.policy)
    options, catalog = work.payload.options, work.settings.engine_catalog or ""
    statement = statement_for(rewriter.type, action, catalog, work.payload.table, options, policy)
    if statement is None:
        return folded(rewriter, action)
    remote: JsonObject = {
        "engine": rewriter.name,
        "action": action,
        "snapshot_id": table.metadata.refs[MAIN_BRANCH].snapshot_id,
        "began": work.turn.age.total_seconds(),
    }

    def started(identity: JsonObject) -> None:
        work.state["remote"] = {**remote, "identity": identity}
        work.save(progress=False)

    def tell(report: JsonObject) -> None:
        work.turn.report(**{**report, "phase": f"{action.replace('_', ' ')} by {rewriter.name}: {report['phase']}"})

    try:
        rewriter.run(statement, LIMIT, started, tell)
    except PermanentRunnerError as refused:
        # Mostly the engine's own word. Where it was ours, the statement may run on: then the cleanup ends it.
        if _is_over(work, rewriter):
            work.state["remote"] = None
        raise PermanentRunnerError(
            refused.message, code=refused.code, hint=HINTS.get(refused.code, refused.hint)
        ) from refused
    outcome, _ = landed(work, work.state["remote"])
    ignored = ignored_options(rewriter.type, action, options)
    if ignored:
        said = f"{rewriter.name} has no word for {', '.join(ignored)}, which did nothing."
        outcome = outcome.model_copy(update={"message": f"{outcome.message} {said}"})
    work.state["remote"] = None
    return outcome


def _is_over(work: Work, rewriter: Rewriter) -> bool:
    remote = work.state["remote"]
    try:
        return remote is None or rewriter.end(remote["identity"]) is not None
    except InfrastructureError:
        return False


def plan(work: Work, rewriter: Rewriter, action: Action, table: Table) -> Outcome:
    """An estimate by our own figures: the engine is not asked."""
    policy = policy_of(table.metadata.properties, work.settings.policy)
    if statement_for(rewriter.type, action, "", work.payload.table, work.payload.options, policy) is None:
        return folded(rewriter, action)
    with translated(work.payload.table.catalog):
        figures = figures_of(table, policy, deep=True, engine=rewriter.type)
    files, size = figures["rewritable_files"], figures["rewritable_bytes"]
    if action == "rewrite_data_files":
        made = -(-size // (work.payload.options.target_file_size_bytes or policy["target_file_size_bytes"]))
        message = (
            f"About {several(files, 'file')}, {in_words(size)} -> {several(made, 'file')} or more, by {rewriter.name}."
        )
        details = {"rewritten_files": files, "rewritten_bytes": size, "new_files": made}
        return Outcome(
            action=action, outcome="success" if files else "skipped", message=message, files_before=figures["data_files"],
            bytes_before=figures["bytes"], details=details,
        )  # fmt: skip
    what = "delete files" if action == "rewrite_position_delete_files" else "manifests"
    count = figures["delete_files" if action == "rewrite_position_delete_files" else "manifests"]
    message = f"{count:,} {what}, which {rewriter.name} would look through."
    return Outcome(action=action, outcome="success" if count else "skipped", message=message, files_before=count)


def folded(rewriter: Rewriter, action: Action) -> Outcome:
    return Outcome(
        action=action,
        outcome="skipped",
        message=f"Folded into rewrite_data_files, which applies position deletes on {rewriter.name}.",
    )


# What landed


def landed(work: Work, remote: Mapping[str, Any]) -> tuple[Outcome, list[Since]]:
    table = work.load()
    since = made_since(table.metadata, remote["snapshot_id"], remote["identity"])
    own, action = ours(since), remote["action"]
    details = {
        "engine": remote["engine"],
        "snapshots": [each.snapshot.snapshot_id for each in own],
        "since": [each.json_object() for each in since],
    }
    if (wrong := differing(table.metadata, own)) is not None:
        _keep_parent(work, wrong)
        return _rows_differ(action, remote["engine"], wrong, details), since
    if not own:
        unsure = any(each.made_by == "unknown" for each in since)
        message = f"{remote['engine']} found nothing to rewrite." if not unsure else (
            f"{remote['engine']} is done; which of the snapshots since then are its own, nobody can tell."
        )  # fmt: skip
        return Outcome(
            action=action, outcome="success" if unsure else "skipped", message=message, details=details
        ), since
    before = table.metadata.snapshot_by_id(remote["snapshot_id"])
    return _outcome(action, remote["engine"], own, before, details), since


def _outcome(action: Action, engine: str, own: Sequence[Since], before: Any, details: JsonObject) -> Outcome:
    after = own[-1].snapshot

    def total(name: str) -> int:
        return sum(each.number(name) for each in own)

    if action == "rewrite_manifests":
        gone, made = total("manifests-replaced"), total("manifests-created")
        message = (
            f"{gone:,} manifests became {made:,}, by {engine}." if gone else f"Manifests were rewritten by {engine}."
        )
        return Outcome(action=action, outcome="success", message=message, details=details)
    kind = "delete-files" if action == "rewrite_position_delete_files" else "data-files"
    gone = total("removed-delete-files" if kind == "delete-files" else "deleted-data-files")
    made = total(f"added-{kind}")
    return Outcome(
        action=action,
        outcome="success",
        message=f"{gone:,} {kind.replace('-', ' ')} became {made:,}, by {engine}.",
        files_before=number_of(before, f"total-{kind}"),
        files_after=number_of(after, f"total-{kind}"),
        bytes_before=number_of(before, "total-files-size"),
        bytes_after=number_of(after, "total-files-size"),
        details={
            **details,
            "rewritten_files": gone,
            "rewritten_bytes": total("removed-files-size"),
            "new_files": made,
        },
    )


def _rows_differ(action: Action, engine: str, wrong: Since, details: JsonObject) -> Outcome:
    added, gone = wrong.number("added-records"), wrong.number("deleted-records")
    return Outcome(
        action=action,
        outcome="failed",
        error=ROWS_DIFFER,
        message=f"{engine} took files of {gone:,} rows away and added files of {added:,}, without deletes to apply. Nothing "
        "was rolled back; the snapshot before it is kept by a tag.",
        details=details,
        alarms=[ROWS_DIFFER],
    )


def _keep_parent(work: Work, wrong: Since) -> None:
    tag, parent = f"{KEEP_PREFIX}{work.turn.cleanup_of or work.turn.id}", wrong.snapshot.parent_snapshot_id
    assert parent is not None, "a rewrite has rows to begin with"
    work.retried(lambda table: committing.set_tag(work.catalog, table, work.tag, tag, parent))


# The end of one that somebody else began


def end_remote(work: Work, rewriter: Rewriter | None) -> Again | str:
    """How it ended, or when to ask again. The job's lock is held meanwhile."""
    remote = work.state["remote"]
    waited = work.turn.age if work.turn.cleanup_of else work.turn.age - timedelta(seconds=remote["began"])
    try:
        ended = _end(rewriter, remote)
    except InfrastructureError as away:
        # A refused login too: what cannot be told to end may be at it still.
        if waited < LIMIT + BEYOND_LIMIT:
            work.turn.log.warning("engine_unreachable", engine=remote["engine"], problem=away.message)
            return _later(work, UNREACHABLE)
        return "unreachable until past its limit"
    if ended is None and waited < LIMIT + BEYOND_LIMIT:
        return _later(work, STOPPING)
    return {"closed": "closed", "unknown": "unknown to the engine", None: "not ended until past its limit"}[ended]


def _end(rewriter: Rewriter | None, remote: Mapping[str, Any]) -> Any:
    if rewriter is None or rewriter.name != remote["engine"]:
        raise TransientResourceError(f"This worker has no engine '{remote['engine']}' for this catalog any more.")
    return rewriter.end(remote["identity"])


def _later(work: Work, what: str) -> Again:
    work.turn.report(phase=what)
    return again(ASK_AGAIN, waiting_on=what, saved=work.state, progress=False)
