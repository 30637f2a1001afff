"""What the stale-writer probe looks at, the same for every library."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Observation:
    """Worker A lost its job to worker B and writes late, while B works.

    Every field is read from the library's own tables, not from what a worker believes.
    """

    library: str
    version: str
    stale_finish_accepted: bool
    """A's late success ended the job that B was running."""
    owner_finish: str
    """What became of B's own finish after that, in words."""
    stale_failure_accepted: bool
    """In a second run: A's late *failure* ended the job that B was running."""
    state_after_stale_failure: str
    """In that run: what the job's record says at the end, though B succeeded."""
    stale_beat_renews_owner: bool
    """A's late beat prolonged B's lease while B was frozen: a dead B would not be found."""
    runs: int
    """How often the handler ran to its end."""


HEADER = (
    "| library | late finish of the old worker | then the owner's own finish | late failure of the old worker "
    "| record says, though the owner succeeded | a stale beat renews the owner's lease | handler ran to its end |"
)


def _accepted(value: bool) -> str:
    return "**accepted**" if value else "refused"


def row(seen: Observation) -> str:
    cells = (
        f"{seen.library} {seen.version}",
        _accepted(seen.stale_finish_accepted),
        seen.owner_finish,
        _accepted(seen.stale_failure_accepted),
        seen.state_after_stale_failure,
        "**yes**" if seen.stale_beat_renews_owner else "no",
        f"{seen.runs} x",
    )
    return "| " + " | ".join(cells) + " |"


def markdown(observations: list[Observation]) -> str:
    return "\n".join((HEADER, "|---" * 7 + "|", *(row(seen) for seen in observations))) + "\n"
