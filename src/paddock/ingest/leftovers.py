"""Which drafts ingest still needs: those that a published file, an open or a failed batch, or a live job names."""

from collections import defaultdict
from collections.abc import Sequence

from paddock.db.pool import Database
from paddock.ingest.pipeline import SQL, STEP_KINDS


async def kept_drafts(db: Database, drafts: Sequence[str]) -> set[str]:
    """In this order: a job that ends in between was live at the first look, or is named at the second."""
    ours = [draft for draft in drafts if draft.startswith("ingest/")]
    if not ours:
        return set()
    # All batches of one fetch are in drafts of one id.
    by_id: dict[str, set[str]] = defaultdict(set)
    for draft in ours:
        by_id[draft.rpartition("/")[2]].add(draft)
    rows = await db.fetch(SQL["live_drafts"], list(by_id), list(STEP_KINDS))
    live = {draft for row in rows for draft in by_id[row["draft"]]}
    rows = await db.fetch(SQL["named_manifests"], [f"{draft}/_manifest.json" for draft in ours])
    return live | {row["manifest"].rpartition("/")[0] for row in rows}
