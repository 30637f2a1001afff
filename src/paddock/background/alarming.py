"""What the overview's sentence says about background jobs; nothing when all is well."""

from paddock.background import records
from paddock.db.pool import Database
from paddock.web.judging import Clause
from paddock.web.words import plural


async def clauses(db: Database) -> list[Clause]:
    found: list[Clause] = []
    for state in await records.states(db):
        if not state.healthy:
            found.append(
                Clause(
                    f"background job {state.name} has failed {state.failures_in_a_row} times",
                    "/background",
                    since=state.failing_since,
                    joined=", since",
                    aloud=f"background job {state.name} fails",
                )
            )
        if state.held_back:
            told = plural(state.held_back, "orphan was", "orphans were")
            found.append(Clause(f"{told} found and not deleted", "/background", since=state.last_ended_at))
    return found
