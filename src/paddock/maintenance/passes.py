"""The control plane's own passes over tables: rounds of looks every hour, and the maintenance that nobody asks for.

Each is a function of one tick that returns what it did.
"""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from paddock.config import Config
from paddock.db.pool import Database
from paddock.jobs.core import Core
from paddock.jobs.errors import Refused
from paddock.jobs.kinds import Kind, Nothing, housekeeping
from paddock.jobs.model import LOW, JsonObject, NewJob
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.maintenance.catalog_settings import CatalogSettings, catalogs_from
from paddock.maintenance.health import next_at, why_not_now
from paddock.maintenance.model import MAINTENANCE_PREFIX, TABLES_PREFIX, LookPayload
from paddock.maintenance.submitting import new_maintenance
from paddock.maintenance.tables import SQL, LakeTable, table_of
from paddock.metrics import show_all


async def look_at_all(core: Core, config: Config) -> list[str]:
    """A round for each catalog that has none at work."""
    kinds = [f"{TABLES_PREFIX}{name}" for name in catalogs_from(config)]
    busy = {row["kind"] for row in await core.db.fetch(SQL["live_rounds"], kinds)}
    waiting = [kind for kind in kinds if kind not in busy]
    if waiting:
        await core.submit([look_job(kind.removeprefix(TABLES_PREFIX)) for kind in waiting], public=False)
    return [kind.removeprefix(TABLES_PREFIX) for kind in waiting]


def look_job(catalog: str, *, owner: str = "system") -> NewJob:
    return NewJob(
        f"{TABLES_PREFIX}{catalog}",
        LookPayload(catalog=catalog).model_dump(mode="json", exclude_none=True),
        owner=owner,
    )


async def maintain_due(core: Core, config: Config) -> JsonObject:
    """Submits what is enabled, due and recommended, longest overdue first, so that no more than `max_jobs` of a catalog live."""
    await core.db.execute(SQL["drop_old_actions"])
    await core.db.execute(SQL["drop_unconfigured"], list(catalogs_from(config)))
    await show_figures(core)
    catalogs = catalogs_from(config)
    kinds = [f"{MAINTENANCE_PREFIX}{name}" for name in catalogs]
    live = {row["kind"]: row["n"] for row in await core.db.fetch(SQL["live_maintenance"], kinds)}
    submitted: list[str] = []
    for name, settings in catalogs.items():
        room = settings.max_jobs - live.get(f"{MAINTENANCE_PREFIX}{name}", 0)
        if settings.databases and room > 0:
            submitted += await _maintain_some(core, name, settings, room)
    return {"submitted": submitted}


async def _maintain_some(core: Core, catalog: str, settings: CatalogSettings, room: int) -> list[str]:
    now: datetime = await core.db.fetchval(SQL["clock"])
    due: list[tuple[float, LakeTable]] = []
    async for table in every_table(core.db, catalog):
        standing = table.standing(settings, now)
        if table.uuid is not None and why_not_now(standing, now) is None:
            # By its own cadence: a table that wants it hourly is overdue sooner than one that wants it weekly.
            due.append(((now - next_at(standing, now)) / standing.cadence if standing.maintained_at else 1e9, table))
    submitted: list[str] = []
    for _, table in sorted(due, key=lambda pair: -pair[0]):
        if len(submitted) >= room:
            break
        try:
            actions = [each["action"] for each in table.due_actions(now)]
            job = await new_maintenance(core.db, table, actions, owner="system", priority=LOW)
            await core.submit([job], public=True)
            submitted.append(str(table.table))
        except Refused:
            continue  # somebody was faster, or the table is locked by a cleanup, or new work is refused
    return submitted


async def show_figures(core: Core) -> None:
    healths = await core.db.fetch(SQL["healths"], None, None)
    show_all(core.metrics.tables, {(row["catalog"], row["health"]): row["tables"] for row in healths})
    rounds = [row for row in await core.db.fetch(SQL["catalogs"]) if row["seen_at"] is not None]
    show_all(core.metrics.tables_seen, {(row["catalog"],): row["seen_at"].timestamp() for row in rounds})


async def every_table(db: Database, catalog: str) -> AsyncIterator[LakeTable]:
    after = ("", "")
    while rows := await db.fetch(SQL["of_catalog"], catalog, *after):
        for row in rows:
            yield table_of(row)
        after = (rows[-1]["namespace"], rows[-1]["name"])


async def run_looks(turn: Turn[Nothing], core: Core, config: Config) -> Outcome:
    """Begins a round of looks at the tables of each catalog that has none at work."""
    return done({"catalogs": await look_at_all(core, config)})


async def run_maintenance(turn: Turn[Nothing], core: Core, config: Config) -> Outcome:
    """Submits the maintenance that is enabled, due and recommended, longest overdue first."""
    return done(await maintain_due(core, config))


KINDS: tuple[Kind, ...] = (
    housekeeping("look_at_tables", run_looks, timedelta(minutes=1)),
    housekeeping("maintenance_pass", run_maintenance, timedelta(minutes=5)),
)
