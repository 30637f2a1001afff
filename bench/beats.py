"""5,000 running jobs on 50 workers: what keeping them alive costs, per running job and beat."""

from __future__ import annotations

from bench import paddock_peer
from bench.environment import Env
from bench.figures import Figure, missing

JOBS, WORKERS = 5_000, 50
CPU_GOAL_US = 1.0
GROWTH_GOAL = 2.0


async def run(env: Env) -> list[Figure]:
    cycles = 10 if env.quick else 100
    cpu_name = "PostgreSQL CPU per running job and beat"
    growth_name = f"session table after {cycles} cycles / before"
    try:
        async with (
            env.database("beats") as database,
            paddock_peer.beating(env, database, jobs=JOBS, workers=WORKERS) as sessions,
        ):
            await sessions.cycle()
            before = await sessions.session_table_bytes()
            async with env.measure(sessions.control_pids) as measurement:
                for _ in range(cycles):
                    await sessions.cycle()
            after = await sessions.session_table_bytes()
    except NotImplementedError:
        return [
            missing(cpu_name, "us", f"< {CPU_GOAL_US:g} us"),
            missing(growth_name, "x", f"<= {GROWTH_GOAL:g} x"),
        ]
    usage, beaten = measurement.usage, JOBS * cycles
    cpu = 1e6 * usage.server_cpu / beaten
    growth = after / before
    return [
        Figure(cpu_name, cpu, "us", f"< {CPU_GOAL_US:g} us", cpu < CPU_GOAL_US),
        Figure(growth_name, growth, "x", f"<= {GROWTH_GOAL:g} x", growth <= GROWTH_GOAL),
        Figure("serve CPU per running job and beat", 1e6 * usage.process_cpu / beaten, "us"),
        Figure("WAL per running job and beat", usage.wal_bytes / beaten, "B"),
    ]
