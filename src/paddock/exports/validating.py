"""Whether the queries of a mapping give what it declares: each is described by the engine, none of them runs."""

import asyncio
import time
from typing import TYPE_CHECKING

from paddock.exports import asking, mapping
from paddock.exports.mapping import Definition, Entity
from paddock.exports.model import AskPayload
from paddock.jobs.errors import Refused
from paddock.jobs.model import Job, JsonObject

if TYPE_CHECKING:
    from paddock.jobs.core import Core

WITHIN_SECONDS = 30.0
AT_ONCE = 16
PAUSE_SECONDS = 0.3


async def validate(
    core: "Core",
    definition: Definition,
    *,
    engine: str,
    catalog: str | None,
    schema_name: str | None,
    owner: str,
    role: str | None,
    within: float = WITHIN_SECONDS,
) -> JsonObject:
    """Every node and edge with its mismatches and warnings, or with why it could not be described."""
    checked = mapping.checked(definition)
    deadline = time.monotonic() + within
    places = asyncio.Semaphore(AT_ONCE)

    async def judge(entity: Entity) -> JsonObject:
        payload = AskPayload(
            engine=engine, sql=entity.sql, catalog=catalog, schema_name=schema_name, columns=entity.columns
        )
        async with places:
            job = await _ask(core, payload, owner, role, deadline)
        shown: JsonObject = {"section": entity.section, "name": entity.name, "job_id": job and str(job.id)}
        try:
            return {**shown, **_judged(checked, entity, _answer_of(job))}
        except Refused as refused:
            nothing: JsonObject = {"columns": [], "mismatches": [], "warnings": []}
            return {**shown, "valid": False, **nothing, "error": _error(refused)}

    tasks = [asyncio.create_task(judge(entity)) for entity in mapping.entities(checked)]
    try:
        entities = await asyncio.gather(*tasks)
    finally:
        # One that was refused (no TaskGroup: it would wrap the refusal), or a caller who went away: nobody waits on.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {"valid": all(entity["valid"] for entity in entities), "entities": entities}


async def _ask(core: "Core", payload: AskPayload, owner: str, role: str | None, deadline: float) -> Job | None:
    """None: the time was over before there was room for it."""
    while (left := deadline - time.monotonic()) > 0:
        try:
            return await asking.ask(core, payload, owner=owner, role=role, wait=left)
        except asking.TooManyQuestions:
            await asyncio.sleep(min(left, PAUSE_SECONDS))
    return None


def _answer_of(job: Job | None) -> JsonObject:
    if job is None:
        raise Refused(
            "not_asked",
            "There was no time left to ask the engine about this one.",
            hint="Validate again when the engine has less to do, or a smaller mapping.",
        )
    return asking.answer_of(job)


def _judged(definition: Definition, entity: Entity, described: JsonObject) -> JsonObject:
    mismatches, warnings = (
        [
            {"field": mapping.field_of_column(definition, entity.section, entity.name, one["position"]), **one}
            for one in described.get(name, [])
        ]
        for name in ("mismatches", "warnings")
    )
    return {
        "valid": not mismatches,
        "columns": described["columns"],
        "mismatches": mismatches,
        "warnings": warnings,
        "error": None,
    }


def _error(refused: Refused) -> JsonObject:
    error: JsonObject = {"code": refused.code, "message": refused.message, "hint": refused.hint}
    return error | {name: refused.details[name] for name in ("line", "column") if refused.details.get(name) is not None}
