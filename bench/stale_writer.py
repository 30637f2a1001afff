"""The stale-writer probe: what each library does when a worker that lost its job writes after all.

The story, with the libraries' own workers in processes of their own:

1. Worker A claims the job and is frozen (SIGSTOP): a long pause, a paused machine, a lost network.
2. A's lease runs out. The library's own rescue gives the job to worker B, which runs it.
3. B is frozen, so that nothing it does can be mistaken for A's doing. A thaws. It beats: does that renew B's lease?
4. A finishes (second run: fails). Is that accepted, although B runs the job?
5. B thaws and finishes. What becomes of its write?

All answers are read from the library's tables.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib.metadata import version

from bench import paddock_peer, stale_pgqueuer, stale_procrastinate
from bench.environment import Database, Env
from bench.figures import FOLDER, Figure, missing
from bench.process import contender
from bench.stale_library import LEASE_SECONDS, Library
from bench.stale_observation import Observation, markdown

LIBRARIES = (stale_pgqueuer.LIBRARY, stale_procrastinate.LIBRARY)
TABLE = FOLDER / "stale_writer.md"


@dataclass(frozen=True)
class Told:
    """One run of the story."""

    accepted: bool
    beat_renewed_owner: bool
    owner_finish: str
    record: str
    runs: int


async def story(library: Library, database: Database, *, word: str) -> Told:
    await library.install(database)
    async with contender(library.module, database.dsn, "A", grace=0) as old:
        await old.expect("running")
        old.freeze()
        await asyncio.sleep(LEASE_SECONDS + 1)
        await library.rescue(database)
        async with contender(library.module, database.dsn, "B", grace=0) as owner:
            await owner.expect("running")
            owner.freeze()
            claimed = await library.look(database)
            old.thaw()
            # Long enough for A's next beat, shorter than B's lease.
            await asyncio.sleep(LEASE_SECONDS * 0.8)
            before = await library.look(database)

            await old.tell(word)
            await old.expect("written")
            after = await library.look(database)

            owner.thaw()
            await owner.tell("finish")
            answer = await owner.expect("written")
            end = await library.look(database)
            async with database.connect() as connection:
                runs = await connection.fetchval("SELECT count(*) FROM ledger")
    if not before.open or before.owner != claimed.owner:
        raise RuntimeError(f"{library.name}: the job was no longer worker B's when the stale worker wrote.")
    return Told(
        accepted=not after.open,
        beat_renewed_owner=before.lease != claimed.lease,
        owner_finish=_fate(answer["error"], changed=after.record != end.record),
        record=end.record,
        runs=runs,
    )


def _fate(error: str | None, *, changed: bool) -> str:
    if error is not None:
        return "**error**: " + error.replace("|", "/")
    return "accepted" if changed else "**lost without an error**"


async def observe(env: Env, library: Library) -> Observation:
    async with env.database("stale_finish") as database:
        finished = await story(library, database, word="finish")
    async with env.database("stale_failure") as database:
        failed = await story(library, database, word="fail")
    return Observation(
        library=library.name,
        version=version(library.name),
        stale_finish_accepted=finished.accepted,
        owner_finish=finished.owner_finish,
        stale_failure_accepted=failed.accepted,
        state_after_stale_failure=failed.record,
        stale_beat_renews_owner=finished.beat_renewed_owner,
        runs=finished.runs,
    )


async def run(env: Env) -> list[Figure]:
    observations = []
    figures = []
    try:
        async with env.database("stale_paddock") as database:
            observations.append(await paddock_peer.stale_writer(env, database))
    except NotImplementedError:
        figures.append(missing("paddock: stale writes accepted", "of 3", "= 0 of 3"))
    observations += [await observe(env, library) for library in LIBRARIES]
    for seen in observations:
        bad = seen.stale_finish_accepted + seen.stale_failure_accepted + seen.stale_beat_renews_owner
        ours = seen.library == "paddock"
        goal, met = ("= 0 of 3", bad == 0) if ours else (None, None)
        figures.append(
            Figure(f"{seen.library}: stale writes accepted", bad, "of 3", goal, met, note="finish, failure, beat")
        )
    table = markdown(observations)
    TABLE.write_text(table)
    env.say(f"for the docs, also in bench/{TABLE.name}:")
    print(table)
    return figures
