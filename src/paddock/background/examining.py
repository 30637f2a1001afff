"""What `paddock doctor` says about the background jobs."""

from collections.abc import AsyncIterator
from datetime import timedelta

from paddock.background import records
from paddock.background.records import State
from paddock.config import Config
from paddock.doctor.findings import Finding, broken, ok, warning
from paddock.jobs.core import Core
from paddock.pass_metrics import JOBS

CHECK = "background jobs"
# As the alert `BackgroundJobNotRunning` has it.
LATE_BY = timedelta(minutes=10)


async def background_jobs(core: Core, config: Config) -> AsyncIterator[Finding]:
    found = await records.states(core.db)
    problems = [finding for state in found if (finding := _judged(state)) is not None]
    if missing := sorted(set(JOBS) - {state.name for state in found}):
        yield broken(CHECK, f"Not known to the database: {', '.join(missing)}.", "Start `paddock serve` once.")
    for finding in problems:
        yield finding
    if not problems and not missing:
        yield ok(CHECK, f"{len(found)} background jobs run when they should.")


def _judged(state: State) -> Finding | None:
    if not state.enabled:
        return warning(
            CHECK, f"{state.name} is switched off.", f"`paddock schedules enable {state.name}` when the reason is gone."
        )
    if not state.healthy:
        told = (state.error or {}).get("message", "no error was kept")
        return broken(
            CHECK,
            f"{state.name} has failed {state.failures_in_a_row} times, since {state.failing_since:%Y-%m-%d %H:%M} UTC: {told}",
            f"`paddock why {state.last_job_id}`, then `paddock ops trigger {state.name} --reason ...`.",
        )
    if state.held_back:
        return warning(
            CHECK,
            f"{state.held_back} orphans were found and not deleted: too many for one pass.",
            "See that they are nobody's, then `paddock ops trigger reconciliation --force --reason ...`.",
        )
    if state.waits_since is not None and state.now - state.waits_since > LATE_BY:
        minutes = (state.now - state.waits_since).total_seconds() / 60
        return warning(
            CHECK,
            f"A pass of {state.name} has waited for {minutes:.0f} min, and nobody takes it.",
            "Look at the log of `paddock serve`: it runs the passes itself.",
        )
    if state.job_id is None and state.next_at is not None and state.now - state.next_at > LATE_BY:
        minutes = (state.now - state.next_at).total_seconds() / 60
        return warning(
            CHECK,
            f"{state.name} has been due for {minutes:.0f} min, and no pass of it was made.",
            "Start `paddock serve`, or look at its log: its schedules stand still.",
        )
    since = state.last_success_at
    if since is not None and state.now - since > state.every + LATE_BY:
        minutes = (state.now - since).total_seconds() / 60
        return warning(
            CHECK,
            f"{state.name} last succeeded {minutes:.0f} min ago.",
            f"`paddock ops jobs` and `paddock jobs list --kind {state.name}` show why.",
        )
    return None
