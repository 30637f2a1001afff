from pydantic import BaseModel

from paddock.jobs.kinds import Kind
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn


class Guests(BaseModel):
    names: list[str]


async def greet(turn: Turn[Guests]) -> Outcome:
    """Killed on any line, it goes on after the last guest it saved: nobody is left out, one may be greeted twice."""
    names = turn.payload.names
    for n in range(turn.saved.get("greeted", 0), len(names)):
        turn.log.info("Hello!", name=names[n])
        await turn.save({"greeted": n + 1})
        turn.report(percent=100 * (n + 1) // len(names))
    return done({"greeted": len(names)})


GREET = Kind(name="greet", payload=Guests, handler=greet, submit=frozenset({"analyst", "ops", "admin"}))
