"""The sessions of workers: what each runs, which are late, quiet or gone, and the switch that lets one claim nothing new."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import paddock
from paddock.amounts import listed
from paddock.api.access import OPERATORS
from paddock.api.errors import not_found
from paddock.api.ids import path_id
from paddock.api.tokens import Caller
from paddock.db.pool import Database
from paddock.jobs import reading
from paddock.jobs.figures import running
from paddock.jobs.figures.overviews import WorkerSeen
from paddock.jobs.figures.running import Held, Lost
from paddock.jobs.model import Job, SessionId
from paddock.web import words
from paddock.web.frame import back, field, form, page, plane_of, render
from paddock.web.progress import reported

MOST_HELD = 40
MOST_RUNNING = 100
MOST_LOST = 10
MOST_GONE = 50
# More slots than these are shown as a bar.
MOST_TILES = 24

State = Literal["live", "late", "stopping", "quiet", "lost", "stopped"]


@dataclass(frozen=True, slots=True)
class Row:
    seen: WorkerSeen
    state: State
    held: Sequence[Held]
    # Kinds that no other live worker offers.
    alone: Sequence[str]
    inside: bool

    @property
    def tiles(self) -> Sequence[float | None] | None:
        """A number for each slot: how far its job is, None for a free one; no tiles at all where there are too many."""
        slots = max(self.seen.slots, len(self.held))
        if slots > MOST_TILES:
            return None
        return [reported(held.report).filled for held in self.held] + [None] * (slots - len(self.held))

    @property
    def effect(self) -> str:
        """What quieting it does."""
        runs = self.seen.running
        text = (
            f"It ends {words.plural(runs, 'job')} it runs and claims nothing new" if runs else "It claims nothing new"
        )
        alone = f" Nobody else offers {listed(self.alone)}: those jobs wait." if self.alone else ""
        own = " It runs Paddock's own work inside `paddock serve`." if self.inside else ""
        return f"{text} until you resume it.{alone}{own}"


@dataclass(frozen=True, slots=True)
class Gone:
    """A session that is over, with what it held then, as that stands now."""

    seen: WorkerSeen
    state: State
    lost: Sequence[tuple[Lost, Job | None]]


def routes() -> list[Route]:
    return [page("/workers", show, OPERATORS), form("/workers/{session}/quiet", quiet, OPERATORS)]


async def show(request: Request, caller: Caller) -> Response:
    core = plane_of(request).core
    seen = await reading.workers(core.db)
    live = sorted((worker for worker in seen if worker.live), key=lambda worker: (worker.worker_id, worker.started_at))
    gone = sorted((worker for worker in seen if not worker.live), key=lambda worker: worker.expires_at, reverse=True)
    held = await running.held_by(core.db, [worker.session for worker in live], most=MOST_HELD)
    late = await running.late(core.db)
    internal = {kind.name for kind in core.kinds if kind.internal}
    rows = rows_of(live, held, late, internal)
    return await render(
        request,
        caller,
        "workers.html",
        workers=rows,
        summary=_summary(rows),
        versions=_versions(rows),
        running=held[:MOST_RUNNING],
        more_running=sum(worker.running for worker in live) > len(held[:MOST_RUNNING]),
        gone=await _gone(core.db, gone[:MOST_GONE]),
        only_inside=all(row.inside for row in rows),
    )


async def quiet(request: Request, caller: Caller) -> Response:
    session = SessionId(path_id(request.path_params["session"], "session"))
    wanted = await field(request, "quiet") != "off"
    if not await plane_of(request).core.quiet(session, actor=caller.actor, quiet=wanted):
        raise not_found("session")
    said = "The worker ends what it runs and claims nothing new." if wanted else "The worker claims again."
    return back(request, "/workers", said)


def rows_of(
    live: Sequence[WorkerSeen], held: Sequence[Held], late: frozenset[SessionId], internal: set[str]
) -> list[Row]:
    """The cost grows with the number of workers, not with its square."""
    offered = Counter(kind for worker in live if _claims(worker) for kind in set(worker.kinds))
    holding: dict[SessionId, list[Held]] = defaultdict(list)
    for job in held:
        holding[job.session].append(job)
    return [_row(worker, offered, holding[worker.session], late, internal) for worker in live]


def _claims(worker: WorkerSeen) -> bool:
    return not worker.quiet and not worker.dying


def _row(
    worker: WorkerSeen,
    offered: Counter[str],
    held: Sequence[Held],
    late: frozenset[SessionId],
    internal: set[str],
) -> Row:
    own = int(_claims(worker))
    state: State = (
        "late" if worker.session in late else "stopping" if worker.dying else "quiet" if worker.quiet else "live"
    )
    return Row(
        worker,
        state,
        held,
        sorted(kind for kind in set(worker.kinds) if offered[kind] == own),
        inside=bool(worker.kinds) and set(worker.kinds) <= internal,
    )


async def _gone(db: Database, workers: Sequence[WorkerSeen]) -> list[Gone]:
    lost = await running.lost_by(db, workers, most=MOST_LOST) if workers else []
    jobs = {job.id: job for job in await reading.jobs(db, [found.id for found in lost])} if lost else {}
    return [
        Gone(
            worker,
            # One that says goodbye has given everything back before.
            "stopped" if worker.dying else "lost",
            [(found, jobs.get(found.id)) for found in lost if found.session == worker.session],
        )
        for worker in workers
    ]


def _summary(rows: Sequence[Row]) -> str:
    slots, busy = sum(row.seen.slots for row in rows), sum(row.seen.running for row in rows)
    states = Counter(row.state for row in rows)
    odd = [f"{states[state]} {state}" for state in ("late", "stopping", "quiet") if states[state]]
    text = f"{words.plural(len(rows), 'worker')} connected, {busy:,} of {words.plural(slots, 'slot')} busy"
    return f"{text}; {listed(odd)}." if odd else f"{text}."


def _versions(rows: Sequence[Row]) -> str | None:
    """A mix, among them or with this control plane, in words."""
    found: Mapping[str, int] = Counter(row.seen.version for row in rows)
    if not set(found) - {paddock.__version__}:
        return None
    mix = listed([f"{version or 'unknown'} on {words.plural(n, 'worker')}" for version, n in sorted(found.items())])
    return f"Versions differ: {mix}; this control plane is {paddock.__version__}."
