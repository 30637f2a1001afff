"""Settings of the whole installation, changed while it runs. What belongs to one process is in `paddock.config`.

Each is declared once with its type and default; a capability declares its own. What is not set has its default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from pydantic import StringConstraints, TypeAdapter, ValidationError

from paddock.api.errors import invalid
from paddock.db.pool import Database, statements
from paddock.field_errors import field_errors
from paddock.jobs.acting import audit

SQL = statements("paddock.api.sql", "settings.sql")


@dataclass(frozen=True, slots=True)
class Setting:
    type: TypeAdapter[Any]
    default: Any
    description: str


SETTINGS: dict[str, Setting] = {}


def declare(name: str, type: Any, default: Any, description: str) -> None:
    if name in SETTINGS:
        raise ValueError(f"Setting '{name}' is declared twice; rename one of them.")
    SETTINGS[name] = Setting(TypeAdapter(type), default, description)


declare(
    "announcement",
    Annotated[str, StringConstraints(max_length=500)],
    "",
    "A sentence for everybody, shown on each page of the dashboard.",
)


async def read(db: Database) -> dict[str, dict[str, Any]]:
    rows = {row["name"]: row for row in await db.fetch(SQL["settings"])}
    shown: dict[str, dict[str, Any]] = {}
    for name, setting in sorted(SETTINGS.items()):
        row = rows.get(name)
        shown[name] = {
            "value": setting.default if row is None else orjson.loads(row["value"]),
            "default": setting.default,
            "description": setting.description,
            "updated_at": None if row is None else row["updated_at"],
            "updated_by": None if row is None else row["updated_by"],
        }
    return shown


async def write(db: Database, values: Mapping[str, Any], *, actor: str, reason: str | None) -> None:
    """Sets those named; None takes one back to its default. All of them or none."""
    checked = _checked(values)
    async with db.transaction() as tx:
        before = {
            row["name"]: orjson.loads(row["value"]) for row in await tx.fetch(SQL["settings_for_update"], list(checked))
        }
        for name, value in sorted(checked.items()):
            if value is None:
                await tx.execute(SQL["drop_setting"], name)
            else:
                await tx.execute(SQL["put_setting"], name, orjson.dumps(value).decode(), actor)
            change = {"from": before.get(name, SETTINGS[name].default), "to": value}
            await audit(tx, actor, "config", f"setting:{name}", reason, change)


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    problems: list[dict[str, str]] = []
    checked: dict[str, Any] = {}
    for name, value in values.items():
        setting = SETTINGS.get(name)
        if setting is None:
            known = ", ".join(sorted(SETTINGS))
            problems.append({"field": name[:100], "message": f"There is no such setting; there are {known}."})
            continue
        try:
            checked[name] = (
                None if value is None else setting.type.dump_python(setting.type.validate_python(value), mode="json")
            )
        except ValidationError as error:
            problems += [
                {"field": ".".join([name, *found.path]), "message": found.sentence} for found in field_errors(error)
            ]
    if problems:
        raise invalid(problems)
    return checked
