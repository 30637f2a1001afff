"""What the button "Schedule…" of a table fills in."""

from collections.abc import Sequence
from urllib.parse import unquote

from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.maintenance import service
from paddock.maintenance.model import ACTIONS, database_text
from paddock.web.planning import Planned, name_of

USUAL: Sequence[str] = ("rewrite_data_files", "expire_snapshots")


async def of_table(plane: ControlPlane, caller: Caller, id: str) -> Planned:
    """`id` is the end of its page's path: catalog/database/table."""
    catalog, _, rest = id.partition("/")
    database, _, table = rest.partition("/")
    named = service.table_name(unquote(catalog), unquote(database), unquote(table))
    found = await service.visible_table(plane, caller, named)
    recommended = {each["action"] for each in found.due_actions(await service.now_of(plane))}
    actions = [action for action in ACTIONS if action in (recommended or USUAL)]
    payload = {
        "catalog": found.catalog,
        "database": database_text(found.table.namespace),
        "table": found.name,
        "actions": actions,
    }
    words = [
        ("Maintains", f"the table {found.table}"),
        ("By", ", ".join(action.replace("_", " ") for action in actions)),
    ]
    return Planned("scheduled_maintenance", payload, name_of("maintain", found.database, found.name), words)
