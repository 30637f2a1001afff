"""No-op jobs per second, claim and finish, one worker: interleaved rounds, ratios within each round, their median."""

from __future__ import annotations

from bench import floor, paddock_peer, pgqueuer_peer, procrastinate_peer
from bench.contenders import Contender, Drained, Load
from bench.environment import Env
from bench.figures import Figure, at_least, missing, shown

CONTENDERS = (
    Contender("floor", floor.drain),
    Contender("paddock", paddock_peer.drain),
    Contender("pgqueuer", pgqueuer_peer.drain, share_of_jobs=0.4),
    Contender("procrastinate", procrastinate_peer.drain, share_of_jobs=0.02),
)

GOALS = (("floor", 0.6), ("pgqueuer", 1.0), ("procrastinate", 40.0))

Rounds = dict[str, list[Drained]]


# What a flush of the WAL costs on a disk that is not as quick as this one: the pause is PostgreSQL's own `commit_delay`.
SLOW_DISK_MS = 4


async def rounds_of(
    env: Env, contenders: tuple[Contender, ...], load: Load, rounds: int, *, flush_ms: int = 0
) -> Rounds:
    measured: Rounds = {}
    for number in range(rounds):
        # Every other round runs backwards, so that nobody always comes after the same neighbour.
        for contender in contenders if number % 2 == 0 else contenders[::-1]:
            jobs = max(1, round(load.jobs * contender.share_of_jobs))
            async with env.database(contender.name, commit_delay=1000 * flush_ms, commit_siblings=0) as database:
                own = Load(jobs, load.batch, load.in_flight, load.payload_bytes)
                try:
                    drained = await contender.drain(env, database, own)
                except NotImplementedError:
                    continue
            measured.setdefault(contender.name, []).append(drained)
            env.say(f"round {number + 1}: {contender.name}, batch {load.batch}: {drained.rate:,.0f} jobs/s")
    return measured


def ratios(measured: Rounds, of: str, to: str) -> list[float]:
    return [mine.rate / theirs.rate for mine, theirs in zip(measured[of], measured[to], strict=True)]


async def run(env: Env) -> list[Figure]:
    rounds = 2 if env.quick else 5
    batched = Load(jobs=10_000 if env.quick else 50_000)
    single = Load(jobs=300 if env.quick else 2_000, batch=1, in_flight=1)

    measured = await rounds_of(env, CONTENDERS, batched, rounds)
    figures: list[Figure] = []
    for peer, goal in GOALS:
        name = f"paddock / {peer}, batch {batched.batch}"
        if "paddock" in measured:
            figures.append(at_least(name, ratios(measured, "paddock", peer), goal))
        else:
            figures.append(missing(name, "x", f">= {goal:g} x"))
    figures += _seen(measured, batched)

    slow = await rounds_of(env, CONTENDERS[:2], batched, rounds, flush_ms=SLOW_DISK_MS)
    label = f"paddock / floor, batch {batched.batch}, {SLOW_DISK_MS} ms a flush"
    figures.append(shown(label, ratios(slow, "paddock", "floor"), "x"))

    alone = await rounds_of(env, CONTENDERS[:2], single, rounds)
    if "paddock" in alone:
        figures.append(shown("paddock / floor, batch 1", ratios(alone, "paddock", "floor"), "x"))
    return figures + _seen(alone, single)


def _seen(measured: Rounds, load: Load) -> list[Figure]:
    figures = []
    for name, drains in measured.items():
        label = f"{name}, batch {load.batch}"
        if name in ("pgqueuer", "procrastinate"):
            figures.append(shown(f"{name} / floor, batch {load.batch}", ratios(measured, name, "floor"), "x"))
        if name == "procrastinate":
            label = f"{name}, concurrency {procrastinate_peer.CONCURRENCY}"
        figures += [
            shown(f"{label}: rate", [drained.rate for drained in drains], "jobs/s"),
            shown(f"{label}: CPU of PostgreSQL and workers", [drained.cpu_us for drained in drains], "us/job"),
            shown(f"{label}: WAL", [drained.wal_bytes for drained in drains], "B/job"),
        ]
    return figures
