"""What is kept of a process or pod before it is taken away: the end of its log, and what was known of how it ended."""

from uuid import UUID

import orjson
import structlog

from paddock.db.pool import Database
from paddock.instances.model import SQL
from paddock.jobs.errors import InfrastructureError
from paddock.jobs.model import JsonObject
from paddock.runtimes.kubernetes import failures
from paddock.runtimes.runtime import Found, Runtime

log = structlog.get_logger()


async def keep(
    db: Database, runtime: Runtime, id: UUID, generation: UUID, name: str, found: Found | None = None
) -> None:
    """What cannot be read now is not kept: an end waits for no evidence."""
    text, evidence = None, None
    try:
        found = found or await runtime.get(name, "closely")
        if found is not None:
            evidence = evidence_of(found)
            text = await runtime.logs(name)
    except InfrastructureError as problem:
        log.warning("evidence_not_kept", pod_name=name, error=problem.message)
    if found is not None and found.diagnosis is not None:
        failures.count(found.diagnosis)
    if text is not None or evidence is not None:
        await db.execute(SQL["keep_evidence"], id, generation, _clean(text), evidence)


def evidence_of(found: Found) -> str | None:
    if found.evidence is None:
        return None
    diagnosis = None if found.diagnosis is None else found.diagnosis.as_json()
    told = {"pod_name": found.name, "phase": found.phase, "diagnosis": diagnosis, **found.evidence}
    # PostgreSQL takes no NUL in JSON either.
    return orjson.dumps(told).decode().replace("\\u0000", "�")


async def kept(db: Database, id: UUID) -> JsonObject | None:
    """What is known of the last pod that was taken away or ended by itself."""
    text = await db.fetchval(SQL["evidence"], id)
    found: JsonObject | None = None if text is None else orjson.loads(text)
    return found


def _clean(text: str | None) -> str | None:
    return None if text is None else text.replace("\0", "�")
