"""How a query can end without its answer, in sentences."""

from typing import Any

from paddock.graphs.problems import Problem
from paddock.graphs.query import Query

# What a child may call a failure, and the status it is answered with.
FAILURES = {"query_failed": 422, "query_out_of_memory": 422, "read_only": 422, "answer_too_large": 422}


def failure(query: Query, facts: dict[str, Any]) -> Problem:
    code = facts.get("code")
    if code == "interrupted":
        return stopped(query)
    if code not in FAILURES:
        code = "query_failed"
    hint, details = facts.get("hint"), facts.get("details")
    return Problem(
        FAILURES[code],
        code,
        str(facts.get("message", ""))[:4000],
        hint=hint[:500] if isinstance(hint, str) else None,
        details=_place(details) if isinstance(details, dict) else None,
    )


def _place(details: dict[str, Any]) -> dict[str, int]:
    return {name: details[name] for name in ("line", "column") if isinstance(details.get(name), int)}


def stopped(query: Query) -> Problem:
    if query.stopped == "timeout":
        waited = " It was still waiting for others to end." if query.state == "waiting" else ""
        return Problem(
            408,
            "QUERY_TIMEOUT",
            f"The query did not end within {query.asked.timeout:g} s.{waited}",
            hint="Give it more time (timeout_ms; --timeout on the command line), or ask for less.",
        )
    if query.stopped == "stopping":
        return Problem(503, "instance_stopping", "The instance is being stopped.")
    return Problem(409, "query_cancelled", "The query was cancelled.")


def restarted() -> Problem:
    return Problem(
        503,
        "engine_restarted",
        "The engine was restarted because of another query.",
        hint="Ask again.",
        headers={"Retry-After": "1"},
    )


def crashed() -> Problem:
    return Problem(
        422,
        "query_crashed",
        "The query crashed the graph engine, which was restarted.",
        hint="Write it in another way.",
    )


def out_of_memory() -> Problem:
    return Problem(
        422,
        "query_out_of_memory",
        "The query needs more memory than the instance has.",
        hint="Return less, filter earlier, or make an instance with more memory.",
    )


def outcome(query: Query) -> str:
    return query.ended.code if isinstance(query.ended, Problem) else "ok"
