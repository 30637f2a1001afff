"""The usual finish: jobs that are done and whose end brings nothing else about. One statement, a transaction by itself."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import asyncpg

from paddock.db.pool import Transaction, column
from paddock.jobs.fencing import BAD_DATA, SQL, Key, writer_of
from paddock.jobs.finish_items import Item

if TYPE_CHECKING:
    from paddock.jobs.core import Core


async def complete(core: "Core", items: Mapping[Key, Item]) -> dict[Key, str | None]:
    """The attempts whose job was ended. Whatever is not among them is as it was, and for `finishing` to look at: jobs
    with a group or an end hook, an end that somebody listens for, writes that the fence turns away."""
    plain = [key for key in sorted(items) if items[key].plain]
    if not plain:
        return {}
    sources = [items[key].source for key in plain]

    async def write(tx: Transaction) -> list[asyncpg.Record]:
        rows = await tx.fetch(
            SQL["complete_jobs"],
            [source.id for source in sources],
            [source.attempt_id for source in sources],
            column(items[key].result for key in plain),
        )
        core.tell_completed(tx, rows)
        return rows

    try:
        rows = await core.db.repeated(write, alone=True)
    except BAD_DATA:
        return {}  # nothing of the batch was written; one by one it shows whose data it was
    return dict.fromkeys(plain if len(rows) == len(plain) else map(writer_of, rows))
