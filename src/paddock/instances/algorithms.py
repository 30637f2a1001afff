"""`instance_algorithm`: one execution of an algorithm on one generation of an instance. Its id is the job's: progress, cancel,
history and time-outs are the core's. The job starts it in the instance and polls; its cleanup stops it there.
"""

import contextlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from paddock.config import Config
from paddock.db.pool import Transaction
from paddock.instances import finding, moving, talking
from paddock.instances.model import SQL
from paddock.instances.running_on import runtime_of
from paddock.instances.talking import Answer, BadAnswer, Endpoint, Unreachable, saved_address
from paddock.jobs.core import Core
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, UserMistake
from paddock.jobs.model import Job, JsonObject, NewEvent
from paddock.jobs.outcomes import Again, Outcome, again, done
from paddock.jobs.turn import Turn

ALGORITHM = "instance_algorithm"
DEFAULT_TIMEOUT = timedelta(minutes=30)
LONGEST_TIMEOUT = timedelta(hours=2)
# The instance ends it by itself at its time; this is for one that does not.
SLACK = timedelta(minutes=1)
PAUSES = (0.05, 0.1, 0.1, 0.2, 0.2, 0.5, 0.5, 1.0, 2.0)
REFUSALS = range(400, 500)


class AlgorithmPayload(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instance_id: str
    generation: str
    algorithm: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    asked_by: str


async def run_algorithm(turn: Turn[AlgorithmPayload], core: Core, config: Config) -> Outcome:
    if turn.age > _timeout(turn.payload) + SLACK:
        raise PermanentRunnerError("The algorithm took longer than it may.", code="QUERY_TIMEOUT")
    try:
        endpoint = await _endpoint(core, config, turn.payload)
        if endpoint is None:
            return _wait(turn, turn.saved)
        if not turn.saved.get("accepted"):
            return await _begin(turn, endpoint)
        return await _look(turn, endpoint)
    except Unreachable:
        with contextlib.suppress(InfrastructureError):  # whoever runs it does not answer: then nobody knows
            await finding.look_after(core, config, UUID(turn.payload.instance_id))
        return _wait(turn, turn.saved)
    except BadAnswer:
        return _wait(turn, turn.saved)


def _timeout(payload: AlgorithmPayload) -> timedelta:
    asked = payload.parameters.get("timeout_ms")
    if isinstance(asked, int) and asked > 0:
        return min(timedelta(milliseconds=asked), LONGEST_TIMEOUT)
    return DEFAULT_TIMEOUT


async def _endpoint(core: Core, config: Config, payload: AlgorithmPayload) -> Endpoint | None:
    """None: it does not answer at the moment."""
    row = await core.db.fetchrow(SQL["secret"], UUID(payload.instance_id))
    if row is None or row["status"] != "running" or str(row["generation"]) != payload.generation:
        raise PermanentRunnerError(
            "The instance was deleted, failed or was restarted, and what the algorithm had computed went with it.",
            code="instance_restarted",
            hint="Run it again once the instance runs.",
        )
    runtime, address = runtime_of(config), saved_address(row)
    if runtime is not None and address is None:
        found = await runtime.get(row["pod_name"], "polled")
        address = None if found is None else found.address
    return None if address is None else Endpoint(address, row["generation"], row["token"])


async def _begin(turn: Turn[AlgorithmPayload], endpoint: Endpoint) -> Outcome:
    """Told twice, the instance runs it once: it knows the execution by its id."""
    payload = turn.payload
    body = {**payload.parameters, "execution_id": str(turn.id), "owner": payload.asked_by}
    answer = await talking.ask(endpoint, "POST", f"/algo/{payload.algorithm}", body)
    if answer.status in (200, 202):
        return _wait(turn, {"accepted": True})
    error = _error(answer)
    if answer.status == 409 and error["code"] == "RESOURCE_LOCKED":
        return _wait(turn, turn.saved)  # one that was cancelled is still ending
    if answer.status not in REFUSALS:
        raise Unreachable("the instance cannot begin it now")
    # For whoever asked and waits for the first word.
    await turn.save({"refused": {"status": answer.status, **error}}, progress=False)
    raise UserMistake(error["message"], code=error["code"], hint=error.get("hint"))


async def _look(turn: Turn[AlgorithmPayload], endpoint: Endpoint) -> Outcome:
    answer = await talking.ask(endpoint, "GET", f"/algo/executions/{turn.id}")
    if answer.status == 404:
        raise PermanentRunnerError("The instance no longer knows the execution.", code="instance_restarted")
    status = answer.data.get("status")
    if status == "completed":
        return done(answer.data.get("result"))
    if status in ("failed", "cancelled"):
        error = _error(Answer(answer.status, {"error": answer.data.get("error") or {}}, answer.headers))
        raise PermanentRunnerError(error["message"], code=error["code"], hint=error.get("hint"))
    progress = {name: answer.data.get(name) for name in ("percent", "phase")}
    turn.report(**progress)
    return _wait(turn, {"accepted": True, "progress": progress})


def _wait(turn: Turn[AlgorithmPayload], saved: JsonObject) -> Again:
    pause = PAUSES[min(turn.turn_count - 1, len(PAUSES) - 1)]
    waiting_on = f"instance {turn.payload.instance_id}"
    return again(timedelta(seconds=pause), waiting_on=waiting_on, saved=saved, progress=saved != turn.saved)


def _error(answer: Answer) -> JsonObject:
    told = answer.error
    error: JsonObject = {
        "code": str(told.get("code") or "algorithm_failed")[:100],
        "message": str(told.get("message") or "The algorithm failed.")[:2_000],
        "details": told.get("details") if isinstance(told.get("details"), dict) else {},
    }
    return {**error, "hint": str(told["hint"])[:500]} if told.get("hint") else error


async def clean_algorithm(turn: Turn[AlgorithmPayload], core: Core, config: Config) -> Outcome:
    """Stops it in the instance; one that is gone has stopped."""
    try:
        endpoint = await _endpoint(core, config, turn.payload)
        if endpoint is not None:
            await talking.ask(endpoint, "POST", f"/algo/executions/{turn.cleanup_of}/cancel", {})
    except (PermanentRunnerError, Unreachable, BadAnswer):
        pass
    return done()


async def algorithm_ended(tx: Transaction, job: Job) -> Sequence[NewEvent]:
    """It does not touch the instance's row: a deletion has that locked when it cancels the execution."""
    if job.status == "cancelled" or "refused" in (job.saved or {}):
        return ()
    what = "algorithm_completed" if job.status == "completed" else "algorithm_failed"
    facts = {"execution_id": str(job.id), "algorithm": job.payload["algorithm"]}
    if job.status != "completed":
        facts["code"] = str(job.error_code)
    return [moving.event(what, UUID(job.payload["instance_id"]), **facts)]
