"""`rewrite_data_files`: many small files become few, the rows stay as they are.

At most ten commits. The id of a snapshot is saved before it is committed, so that an attempt that comes after a lost answer knows
what to look for; what a commit did is saved after it. Written files that were not committed are orphans.
"""

from collections.abc import Sequence
from math import ceil

from pyiceberg.table import Table

from paddock.amounts import several, size
from paddock.maintenance.iceberg.committing import TRIES, Conflict, commit_replace
from paddock.maintenance.iceberg.opening import translated
from paddock.maintenance.iceberg.planning import Bin, Limits, Plan, check_engine, plan_rewrite
from paddock.maintenance.iceberg.replacing import Replacement, check_bins, new_snapshot
from paddock.maintenance.iceberg.working import Work, conflict_error
from paddock.maintenance.iceberg.writing import Written, write_bin
from paddock.maintenance.model import Action, Outcome
from paddock.maintenance.policy import policy_of

ACTION: Action = "rewrite_data_files"
MOST_COMMITS = 10


def rewrite_data_files(work: Work) -> Outcome:
    table = work.load()
    check_engine(table)
    settle_pending(work)
    plan = plan_for(work, table)
    if not plan.bins and not _committed(work):
        return Outcome(
            action=ACTION,
            outcome="skipped",
            message=f"Nothing to rewrite: {_left(plan) or f'{plan.files:,} files, none of them small'}.",
            files_before=plan.files,
            files_after=plan.files,
            bytes_before=plan.bytes,
            bytes_after=plan.bytes,
        )
    _note_start(work, plan)
    size = ceil(len(plan.bins) / MOST_COMMITS) or 1
    for first in range(0, len(plan.bins), size):
        written = [_write(work, plan, number) for number in range(first, min(first + size, len(plan.bins)))]
        _commit(work, plan, written)
    return _outcome(work, plan)


def plan_for(work: Work, table: Table) -> Plan:
    options = work.payload.options
    policy = policy_of(table.metadata.properties, work.settings.policy)
    with translated(work.payload.table.catalog):
        limits = Limits(
            target=options.target_file_size_bytes or policy["target_file_size_bytes"],
            min_input_files=options.min_input_files or policy["min_input_files"],
            delete_files=policy["delete_file_threshold"],
        )
        return plan_rewrite(table, limits, max_bytes=options.max_bytes)


def plan(work: Work, table: Table) -> Outcome:
    """An estimate, for a dry run."""
    return _estimate(plan_for(work, table))


def _estimate(plan: Plan) -> Outcome:
    groups = len({each.group for each in plan.bins})
    gone, made = plan.chosen_files, len(plan.bins)
    message = (
        f"{several(groups, 'partition')}, {several(gone, 'file')}, {size(plan.chosen_bytes)} -> {several(made, 'file')}"
        if made
        else "Nothing to rewrite"
    )
    return Outcome(
        action=ACTION,
        outcome="success" if made else "skipped",
        message=f"{message}{f' ({left})' if (left := _left(plan)) else ''}.",
        files_before=plan.files,
        files_after=plan.files - gone + made,
        bytes_before=plan.bytes,
        details={
            "partitions": groups,
            "rewritten_files": gone,
            "rewritten_bytes": plan.chosen_bytes,
            "new_files": made,
        },
    )


def settle_pending(work: Work) -> None:
    """What an earlier attempt was about to commit when it died: it was, or it never will be, for the fence was turned since."""
    step = work.state["step"] or {}
    pending = step.get("pending")
    if pending is None:
        return
    landed = work.load().metadata.snapshot_by_id(pending["snapshot_id"]) is not None
    work.step(pending=None, **({"commits": [*step.get("commits", ()), pending]} if landed else {}))
    work.save()


def _write(work: Work, plan: Plan, number: int) -> Written:
    work.turn.report(phase="rewriting data files", percent=round(100 * number / len(plan.bins)), bins=len(plan.bins))
    # Loaded anew for each bin: credentials that a catalog lends end.
    with translated(work.payload.table.catalog):
        return write_bin(work.load(), plan.bins[number], f"{work.name}-{number:05d}")


def _commit(work: Work, plan: Plan, written: Sequence[Written]) -> None:
    for left in reversed(range(TRIES)):
        table = work.load()
        with translated(work.payload.table.catalog):
            replacement = check_bins(table, plan, written)
        _note_dropped(work, replacement)
        if not replacement.kept:
            return
        id = table.metadata.new_snapshot_id()
        figures = _figures(replacement, id)
        with translated(work.payload.table.catalog):
            new = new_snapshot(table, plan, replacement, id=id, name=work.name, properties=properties_of(work, ACTION))
        work.step(pending=figures)
        work.save(progress=False)
        try:
            commit_replace(work.catalog, table, work.tag, new)
        except Conflict as conflict:
            if not left:
                raise conflict_error(work.payload, conflict) from conflict
            work.after_conflict(work.load())
            continue
        work.step(pending=None, commits=[*_committed(work), figures])
        work.save()
        return


def _note_dropped(work: Work, replacement: Replacement) -> None:
    if replacement.dropped:
        dropped = set((work.state["step"] or {}).get("dropped", ()))
        names = {f"{each.bin.sources[0].file.file_path}" for each in replacement.dropped}
        work.step(dropped=sorted(dropped | names)[:20])


def properties_of(work: Work, action: Action) -> dict[str, str]:
    return {
        "paddock.job-id": str(work.turn.id),
        "paddock.attempt-id": str(work.turn.attempt_id),
        "paddock.action": action,
    }


def _figures(replacement: Replacement, id: int) -> dict[str, int]:
    bins: list[Bin] = [each.bin for each in replacement.kept]
    files = [each.file for each in replacement.kept if each.file is not None]
    return {
        "snapshot_id": id,
        "removed_files": sum(len(each.sources) for each in bins),
        "removed_bytes": sum(each.bytes for each in bins),
        "added_files": len(files),
        "added_bytes": sum(file.file_size_in_bytes for file in files),
        "rows": sum(each.rows for each in replacement.kept),
    }


def _committed(work: Work) -> list[dict[str, int]]:
    return list((work.state["step"] or {}).get("commits", ()))


def _note_start(work: Work, plan: Plan) -> None:
    """Once: a later attempt finds a table that is half done."""
    if "files_before" not in (work.state["step"] or {}):
        work.step(files_before=plan.files, bytes_before=plan.bytes)


def _outcome(work: Work, plan: Plan) -> Outcome:
    step, commits = work.state["step"] or {}, _committed(work)

    def total(name: str) -> int:
        return sum(each[name] for each in commits)

    before, before_bytes = step.get("files_before", plan.files), step.get("bytes_before", plan.bytes)
    dropped = len(step.get("dropped", ()))
    notes = [_left(plan), f"{dropped:,} bins changed meanwhile and were left" if dropped else ""]
    message = f"{total('removed_files'):,} files became {total('added_files'):,}, with the same {total('rows'):,} rows."
    return Outcome(
        action=ACTION,
        outcome="success" if commits else "skipped",
        message=" ".join([message, *(f"{note[0].upper()}{note[1:]}." for note in notes if note)]),
        files_before=before,
        files_after=before - total("removed_files") + total("added_files"),
        bytes_before=before_bytes,
        bytes_after=before_bytes - total("removed_bytes") + total("added_bytes"),
        details={
            "snapshots": [each["snapshot_id"] for each in commits],
            "rows": total("rows"),
            "rewritten_files": total("removed_files"),
            "rewritten_bytes": total("removed_bytes"),
            "new_files": total("added_files"),
        },
    )


WHY_LEFT = {
    "too_few": "left: too few small ones in their partitions",
    "next_time": "left for the next time (max_bytes)",
    "other_formats": "left: no Parquet",
    "equality_deletes": "left: equality deletes may apply to them",
    "few_deletes": "left: fewer delete files than are worth a rewrite (paddock.delete_file_threshold)",
}


def _left(plan: Plan) -> str:
    return "; ".join(f"{several(number, 'file')} {WHY_LEFT[why]}" for why, number in plan.left.items() if number)
