"""Who needs a snapshot's files. While somebody does, the snapshot cannot be deleted.

A use is taken under the snapshot's row lock, and so is the deletion's look at them: whichever comes first, the other
finds it.
"""

from collections.abc import Sequence
from uuid import UUID

import asyncpg

from paddock.db.pool import Transaction
from paddock.exports.snapshot_states import SQL, Snapshot, snapshot_of
from paddock.jobs.errors import Refused

MOST_NAMED = 20


async def locked(tx: Transaction, id: UUID) -> Snapshot | None:
    """The snapshot as it is now; nobody deletes, retries or settles it before this transaction ends. None: it is gone."""
    if await tx.fetchval(SQL["share_snapshot"], id) is None:
        return None
    row = await tx.fetchrow(SQL["snapshot_in_transaction"], id)
    return None if row is None else snapshot_of(row)


async def take(tx: Transaction, snapshot_id: UUID, subject: str, *, owner: str, name: str) -> None:
    """The caller has locked the snapshot, or has made it in this transaction."""
    await tx.execute(SQL["take_use"], snapshot_id, subject, owner, name)


async def rename(tx: Transaction, subject: str, name: str) -> None:
    await tx.execute(SQL["rename_use"], subject, name)


async def give_back(tx: Transaction, subject: str) -> None:
    """All that it uses; none is fine."""
    await tx.execute(SQL["give_back_uses"], subject)


async def check_unused(tx: Transaction, snapshot_id: UUID, scope: str | None) -> None:
    """`scope` is the owner whose things may be named, None: everybody's."""
    uses = await tx.fetch(SQL["uses"], snapshot_id, MOST_NAMED)
    if uses:
        raise _in_use(uses, scope)


def _in_use(uses: Sequence[asyncpg.Record], scope: str | None) -> Refused:
    seen = [use for use in uses if scope is None or use["owner"] == scope]
    named = ", ".join(f"'{use['name']}' ({use['subject']})" for use in seen[:5])
    return Refused(
        "snapshot_in_use",
        f"The snapshot is used by {named}{', …' if len(seen) > 5 else ''}." if seen else "Others use this snapshot.",
        hint="Delete them first.",
        details={"uses": [{"subject": use["subject"], "name": use["name"]} for use in seen]},
    )
