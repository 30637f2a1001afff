"""What a scaler asks every ten seconds, beside a plain count: CPU of PostgreSQL per call at 1,000,000 due jobs.

The jobs are of three kinds and have been vacuumed, which is the best that the count can hope for: it reads an index alone.
"""

from __future__ import annotations

from bench.environment import Env
from bench.figures import Figure, at_most
from paddock.db.migrate import migrate

GOAL = 0.1
COUNT = "SELECT count(*) FROM jobs WHERE kind = ANY ($1) AND attempt_id IS NULL AND due_at <= paddock_now()"
ASKED = {name: f"SELECT {name}($1)" for name in ("paddock_backlog", "paddock_unfinished")}
KINDS = ["export", "dump:shop", "dump:lake"]
SEED = """
INSERT INTO jobs (id, kind, status, priority, due_at, owner, payload, created_at, started_at)
SELECT paddock_id(now() - n * interval '1 ms', n), ($2::text[])[1 + n % 3], 'pending', 1 + n % 4, now() - n * interval '1 ms',
       'owner-' || n % 50, '{"filler": "seeded"}', now(), CASE WHEN n % 10 = 0 THEN now() END
FROM generate_series(1, $1) AS n
"""


async def run(env: Env) -> list[Figure]:
    jobs, rounds = (50_000, 1) if env.quick else (1_000_000, 5)
    async with env.database("scaling") as database:
        await migrate(database.dsn)
        async with database.connect() as connection:
            await connection.execute(SEED, jobs, KINDS, timeout=600)
            await connection.execute("VACUUM ANALYZE jobs", timeout=600)
            counts: list[float] = []
            asked: dict[str, list[float]] = {name: [] for name in ASKED}

            async def cost(sql: str, calls: int) -> float:
                """CPU milliseconds of one call."""
                await connection.fetchval(sql, KINDS)
                async with env.measure() as measurement:
                    for _ in range(calls):
                        await connection.fetchval(sql, KINDS)
                return 1e3 * measurement.usage.server_cpu / calls

            for number in range(rounds):
                counts.append(await cost(COUNT, 20))
                for name, sql in ASKED.items():
                    asked[name].append(await cost(sql, 200))
                env.say(
                    f"round {number + 1}: {counts[-1]:.1f} ms; "
                    + ", ".join(f"{n} {c[-1]:.2f}" for n, c in asked.items())
                )
    return [
        at_most(
            f"{name} / count(*): CPU at {jobs:,} due jobs",
            [one / other for one, other in zip(costs, counts, strict=True)],
            GOAL,
            note=f"{sorted(costs)[len(costs) // 2]:.2f} against {sorted(counts)[len(counts) // 2]:.1f} ms",
        )
        for name, costs in asked.items()
    ]
