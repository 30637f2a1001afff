"""How long an export tries while its engine cannot be reached or has no room for it.

The backoff between tries is the queue's, and so is the number of tries; here is the time, because that is what a person
wants to know: every failure says until when, and the one after that is the last. An engine that answered in between
begins it anew, which shows in a longer pause between two failures than backoff and a try could make.
"""

from datetime import UTC, datetime, timedelta

from paddock.exports.model import ExportPayload
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from paddock.jobs.turn import Turn

GIVEN_UP_AFTER = timedelta(hours=4)
# The longest backoff is 5 minutes; a try takes a minute of asking, and may wait for a worker.
PAUSE = timedelta(minutes=30)
SAVED = "engine_away"


async def bounded(turn: Turn[ExportPayload], problem: TransientResourceError, before: dict[str, float] | None) -> None:
    """After a failure that spends the cluster's budget. `before` is what the last such failure saved. Raises the last
    one; otherwise `problem` says until when the export is tried."""
    age = turn.age.total_seconds()
    since = age if before is None or age - before["last"] > PAUSE.total_seconds() else before["since"]
    left = GIVEN_UP_AFTER.total_seconds() - (age - since)
    if left <= 0:
        raise PermanentRunnerError(
            f"{problem.message} It was tried for {GIVEN_UP_AFTER.total_seconds() / 3600:.0f} hours.",
            code=problem.code,
            hint=problem.hint or f"See that engine '{turn.payload.engine}' runs and has room, then retry the job.",
        ) from problem
    await turn.save({**turn.saved, SAVED: {"since": since, "last": age}}, progress=False)
    until = datetime.now(UTC) + timedelta(seconds=left)
    problem.message += f" Paddock tries until {until:%Y-%m-%d %H:%M} UTC."
