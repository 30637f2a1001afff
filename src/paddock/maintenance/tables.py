"""The tables that looks have seen, and what was done to them: rows beside the catalogs' own truth.

`looked` and `maintained` run in the transactions that end jobs; whatever a job says of itself is taken only where its kind's
payload says whose table it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import orjson
from pydantic import ValidationError

from paddock import metrics
from paddock.db.pool import Database, Transaction, statements
from paddock.jobs.model import LOW, Job, JobId, JsonObject, NewEvent, NewJob
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.health import Standing, other_maintainer
from paddock.maintenance.model import LEVELS, TABLES_PREFIX, LookPayload, MaintenancePayload, Outcome, TableName

SQL = statements("paddock.maintenance.sql", "tables.sql")
JSON = ("figures", "issues", "policy", "recommended")
ORPHANS_EVERY = timedelta(days=7)
FIGURES = ("files_before", "files_after", "bytes_before", "bytes_after", "bytes_freed", "elapsed_seconds")


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table as the last look saw it."""

    catalog: str
    namespace: str
    name: str
    uuid: str | None
    location: str | None
    snapshot_id: int | None
    health: str
    problem: str | None
    seen_at: datetime
    maintained_at: datetime | None
    failures: int
    orphans_removed_at: datetime | None
    figures: JsonObject = field(default_factory=dict)
    issues: list[JsonObject] = field(default_factory=list)
    policy: JsonObject = field(default_factory=dict)
    recommended: list[JsonObject] = field(default_factory=list)
    # The job that holds its lock.
    live_id: str | None = None
    live_owner: str | None = None
    live_status: str | None = None

    @property
    def table(self) -> TableName:
        return TableName(catalog=self.catalog, namespace=tuple(self.namespace.split(LEVELS)), name=self.name)

    @property
    def database(self) -> str:
        return self.namespace.replace(LEVELS, ".")

    def due_actions(self, now: datetime) -> list[JsonObject]:
        """What the last look recommends, and orphans once a week where the table's policy wants that."""
        wanted = self.policy.get("remove_orphans", {}).get("value")
        possible = not self.figures.get("gc_disabled") and self.figures.get("snapshots", 1) > 0
        last = self.orphans_removed_at
        if not wanted or not possible or (last is not None and now - last < ORPHANS_EVERY):
            return self.recommended
        why = f"Its policy wants files that nothing leads to removed every {ORPHANS_EVERY.days} days."
        return [*self.recommended, {"action": "remove_orphan_files", "why": why}]

    def standing(self, settings: CatalogSettings, now: datetime, *, may_name_job: bool = True) -> Standing:
        def said(name: str, otherwise: Any) -> Any:
            return self.policy.get(name, {}).get("value", otherwise)

        return Standing(
            enabled=bool(said("maintenance_enabled", True)),
            enabled_source=str(self.policy.get("maintenance_enabled", {}).get("source", "default")),
            database_listed=self.database in settings.databases,
            recommended=tuple(each["action"] for each in self.due_actions(now)),
            other_maintainer="other_maintainer" in self.figures,
            problem=self.problem,
            cadence=timedelta(hours=float(said("maintenance_cadence_hours", 6))),
            maintained_at=self.maintained_at,
            failures=self.failures,
            is_live=self.live_id is not None,
            live_job=self.live_id if may_name_job else None,
        )


async def get(db: Database, table: TableName) -> LakeTable | None:
    row = await db.fetchrow(SQL["table"], table.catalog, LEVELS.join(table.namespace), table.name)
    return None if row is None else table_of(row)


async def page(
    db: Database,
    *,
    catalogs: Sequence[str] | None,
    databases: Sequence[str] | None,
    after: tuple[str, str, str] = ("", "", ""),
    limit: int = 100,
    filters: Mapping[str, str | None],
) -> list[LakeTable]:
    """By name. `catalogs` and `databases` are what the caller may see; None in both: everything."""
    wanted = (filters.get(name) for name in ("catalog", "database", "health", "q"))
    rows = await db.fetch(SQL["tables_page"], *after, catalogs, databases, *wanted, limit)
    return [table_of(row) for row in rows]


def table_of(row: asyncpg.Record) -> LakeTable:
    plain = {name: row[name] for name in LakeTable.__slots__ if name not in (*JSON, "live_id")}
    live = None if row["live_id"] is None else str(row["live_id"])
    return LakeTable(**plain, **{name: orjson.loads(row[name]) for name in JSON}, live_id=live)


async def history(db: Database, table: TableName, *, before: int | None = None, limit: int = 100) -> list[JsonObject]:
    rows = await db.fetch(
        SQL["history"], table.catalog, LEVELS.join(table.namespace), table.name, before or 2**62, limit
    )
    return [
        {
            **{name: row[name] for name in ("id", "job_id", "action", "outcome", "message", "error", "at")},
            **orjson.loads(row["figures"]),
            "details": orjson.loads(row["details"]),
            "alarms": list(row["alarms"]),
        }
        for row in rows
    ]


# What ends of jobs leave


async def looked(tx: Transaction, job: Job) -> Sequence[NewJob | NewEvent]:
    payload = LookPayload.model_validate(job.payload)
    if job.status != "completed":
        if payload.table is None:
            await tx.execute(SQL["round_failed"], payload.catalog, job.error_message or f"The look was {job.status}.")
        return ()
    if payload.check:
        return ()
    for seen in job.result["tables"]:
        await _merge(tx, payload, seen, job.result.get("round"))
    if payload.table is None and job.result["last"]:
        await tx.execute(SQL["drop_unseen"], payload.catalog, job.result["round"])
        await tx.execute(SQL["round_ended"], payload.catalog)
    return ()


async def _merge(tx: Transaction, payload: LookPayload, seen: JsonObject, round_id: str | None) -> None:
    key = (payload.catalog, seen["namespace"], seen["name"])
    if seen.get("code") == "unknown_table":
        # Dropped between the listing and the look, or asked for by a name that nobody has.
        await tx.execute(SQL["drop_table"], *key)
        return
    seen = await _without_our_rewrites(tx, seen)
    values = [seen.get(name) for name in ("uuid", "location", "snapshot_id")]
    documents = [None if seen.get(name) is None else orjson.dumps(seen[name]).decode() for name in JSON]
    await tx.execute(SQL["merge_table"], *key, *values, *documents, seen.get("health"), seen.get("problem"), round_id)


async def _without_our_rewrites(tx: Transaction, seen: JsonObject) -> JsonObject:
    """What an engine rewrote because we told it to looks like somebody else's, but for its snapshot, which our actions name."""
    figures = dict(seen.get("figures") or {})
    foreign = figures.pop("foreign_rewrites", None)
    if not foreign:
        return seen
    own = {row["id"] for row in await tx.fetch(SQL["own_snapshots"], seen["uuid"])}
    theirs = [[id, day] for id, day in foreign if str(id) not in own]
    note = other_maintainer(theirs)
    issues = [each for each in seen.get("issues", ()) if each["code"] != "other_maintainer" or note is not None]
    figures.pop("other_maintainer", None)
    return {**seen, "figures": {**figures, **({"other_maintainer": note} if note else {})}, "issues": issues}


async def maintained(tx: Transaction, job: Job) -> Sequence[NewJob | NewEvent]:
    """The outcomes into the history, the facts as events, and a new look at the table."""
    payload = MaintenancePayload.model_validate(job.payload)
    if payload.dry_run:
        return ()
    table, namespace = payload.table, LEVELS.join(payload.table.namespace)
    outcomes = _outcomes(job)
    alarms = await _into_history(tx, job.id, payload, outcomes)
    if job.status != "cancelled":
        orphans = any(each.action == "remove_orphan_files" and each.outcome == "success" for each in outcomes)
        good = job.status == "completed"
        await tx.execute(
            SQL["table_maintained"], table.catalog, namespace, table.name, job.id, good, orphans, payload.uuid
        )
    return [*_facts(job, table, alarms), _new_look(table)]


async def cleaned_up(tx: Transaction, job: Job) -> Sequence[NewJob | NewEvent]:
    """What the action that was cut short had done by then: it belongs to the history too, and somebody must hear of alarms."""
    payload = MaintenancePayload.model_validate(job.payload)
    outcomes = _read_outcomes((job.result or {}).get("cut_short", [])) if job.status == "completed" else []
    if not outcomes or job.cleanup_of is None:
        return ()
    alarms = await _into_history(tx, job.cleanup_of, payload, outcomes)
    data: JsonObject = {"job_id": str(job.cleanup_of), "table": str(payload.table), "error_code": None}
    return [*_alarms(payload.table, data, alarms), _new_look(payload.table)]


async def _into_history(
    tx: Transaction, id: JobId, payload: MaintenancePayload, outcomes: Sequence[Outcome]
) -> list[str]:
    """Their alarms."""
    table, alarms = payload.table, list[str]()
    for each in outcomes:
        figures = {name: value for name, value in each.json_object().items() if name in FIGURES}
        await tx.execute(
            SQL["insert_action"],
            *(id, table.catalog, LEVELS.join(table.namespace), table.name, payload.uuid),
            *(each.action, each.outcome, each.message, each.error),
            *(orjson.dumps(figures).decode(), orjson.dumps(each.details).decode(), each.alarms),
        )
        _count(tx, table.catalog, each)
        alarms += each.alarms
    return alarms


def _new_look(table: TableName) -> NewJob:
    look = LookPayload(catalog=table.catalog, table=table).model_dump(mode="json", exclude_none=True)
    return NewJob(f"{TABLES_PREFIX}{table.catalog}", look, priority=LOW)


def _count(tx: Transaction, catalog: str, each: Outcome) -> None:
    known = metrics.default()
    tx.count(known.maintenance_actions(catalog, each.action, each.outcome))
    if rewritten := each.details.get("rewritten_bytes"):
        tx.count(known.maintenance_bytes(catalog, "rewritten"), float(rewritten))
    if each.bytes_freed:
        tx.count(known.maintenance_bytes(catalog, "freed"), float(each.bytes_freed))


def _outcomes(job: Job) -> list[Outcome]:
    """Of a job that did not complete, what it had saved."""
    held = job.result if job.status == "completed" else job.saved
    return _read_outcomes((held or {}).get("outcomes", []))


def _read_outcomes(held: Sequence[object]) -> list[Outcome]:
    try:
        return [Outcome.model_validate(each) for each in held]
    except ValidationError:
        return []


def _facts(job: Job, table: TableName, alarms: list[str]) -> list[NewEvent]:
    subject = f"table:{table}"
    data: JsonObject = {"job_id": str(job.id), "table": str(table), "error_code": job.error_code}
    facts = _alarms(table, data, alarms)
    if job.status != "cancelled":
        facts.append(NewEvent(f"maintenance.{job.status}", subject, data))
    return facts


def _alarms(table: TableName, data: JsonObject, alarms: Sequence[str]) -> list[NewEvent]:
    return [NewEvent("maintenance.alarm", f"table:{table}", {**data, "alarm": alarm}) for alarm in alarms]
