"""The last step of an instance: its use of the snapshot and its row go, once nothing runs for it any more."""

from uuid import UUID

from paddock.db.pool import Transaction
from paddock.exports import snapshot_uses
from paddock.instances import moving
from paddock.instances.model import SQL, subject_of
from paddock.jobs.acting import audit
from paddock.jobs.core import Core


async def drop(core: Core, id: UUID, generation: UUID | None) -> bool:
    """Nothing, for one that nobody asked to stop. The audit log keeps who asked for its end and why."""

    async def write(tx: Transaction) -> bool:
        row = await tx.fetchrow(SQL["drop_instance"], id, generation)
        if row is None:
            return False
        await snapshot_uses.give_back(tx, subject_of(id))
        details = {"name": row["name"], "owner": row["owner"], "mapping_id": str(row["mapping_id"])}
        await audit(tx, row["deleted_by"], "instance_deleted", subject_of(id), row["delete_reason"], details)
        await core.make(tx, [moving.event("deleted", id, name=row["name"])], owner=row["owner"])
        return True

    return await core.db.repeated(write)
