"""How a job of maintenance is made, whoever wants it: a request, a page or the pass."""

import hashlib
from collections.abc import Sequence

from paddock.db.pool import Database
from paddock.jobs.errors import Refused
from paddock.jobs.model import MAX_TAG_LENGTH, NORMAL, NewJob
from paddock.maintenance.model import (
    ACTIONS,
    MAINTENANCE_PREFIX,
    MaintenancePayload,
    Options,
    TableName,
)
from paddock.maintenance.paths import overlapping, path_of
from paddock.maintenance.tables import SQL, LakeTable

MOST_OTHERS = 1_000


async def new_maintenance(
    db: Database,
    table: LakeTable,
    actions: Sequence[str],
    *,
    owner: str,
    options: Options | None = None,
    dry_run: bool = False,
    confirm: bool = False,
    priority: int = NORMAL,
    traceparent: str | None = None,
) -> NewJob:
    payload = MaintenancePayload.model_validate(
        {
            "table": table.table,
            "uuid": table.uuid,
            # In the fixed order, each once, so that equal requests are equal payloads.
            "actions": [action for action in ACTIONS if action in actions],
            "options": options or Options(),
            "dry_run": dry_run,
            "confirm": confirm,
            "other_locations": await _near(db, table) if "remove_orphan_files" in actions else (),
        }
    )
    return NewJob(
        f"{MAINTENANCE_PREFIX}{table.catalog}",
        payload.model_dump(mode="json", exclude_defaults=True),
        owner=owner,
        priority=priority,
        tags=[tag_of(table.table)],
        traceparent=traceparent,
    )


def tag_of(table: TableName) -> str:
    """The whole name; of one that is too long its beginning, with what tells it from others that begin so."""
    tag = f"table:{table}"
    if len(tag) <= MAX_TAG_LENGTH:
        return tag
    digest = hashlib.sha256(tag.encode()).hexdigest()[:12]
    return f"{tag[: MAX_TAG_LENGTH - 13]}~{digest}"


async def _near(db: Database, table: LakeTable) -> list[str]:
    """Known tables inside this one's location, or around it: what belongs to them is no orphan. All of them or none: a file of one
    that was left out would be taken for one."""
    if table.location is None:
        return []
    folder = path_of(table.location).rstrip("/") + "/"
    rows = await db.fetch(SQL["locations_near"], table.catalog, table.namespace, table.name, folder)
    near = [row["location"] for row in rows if overlapping(row["location"], table.location)]
    if len(near) > MOST_OTHERS:
        raise Refused(
            "location_shared",
            f"{len(near):,} known tables lie inside or around {table.location}, and orphans are not looked for among so many.",
            hint="Give each table a location of its own.",
            status=422,
        )
    return near
