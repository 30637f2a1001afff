"""Asking an engine something short, and what its answers mean."""

from typing import TYPE_CHECKING

from paddock.exports.model import AskPayload
from paddock.jobs.asking import LONGEST_WAIT, MOST_AT_ONCE, Question, TooManyQuestions
from paddock.jobs.errors import Refused
from paddock.jobs.model import Job, JsonObject

if TYPE_CHECKING:
    from paddock.jobs.core import Core

# What is asked for by names alone: an engine that refuses one of these has nothing of that name.
BY_NAME = frozenset({"schemas", "tables", "columns"})
NOT_THERE = frozenset({"query_refused", "no_such_catalog", "no_such_schema"})
ENGINE = Question(kind="describe", whom="engine", mistakes=frozenset({"unknown_engine"}))


async def ask(core: "Core", payload: AskPayload, *, owner: str, role: str | None, wait: float = LONGEST_WAIT) -> Job:
    """The job, ended if it ended in time."""
    return await ENGINE.ask(core, payload.model_dump(mode="json", exclude_none=True), owner=owner, role=role, wait=wait)


def answer_of(job: Job) -> JsonObject:
    """What the engine said; a refusal, a failure or no answer in time is an error for whoever asked."""
    result = ENGINE.answer(job)
    refused = result.get("refused")
    if refused is not None:
        raise Refused(
            refused["code"],
            refused["message"],
            hint=refused.get("hint"),
            details={"line": refused.get("line"), "column": refused.get("column"), "job": str(job.id)},
            status=404 if job.payload.get("action") in BY_NAME and refused["code"] in NOT_THERE else 422,
        )
    return result


__all__ = ["ENGINE", "LONGEST_WAIT", "MOST_AT_ONCE", "TooManyQuestions", "answer_of", "ask"]
