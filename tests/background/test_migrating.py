"""An installation that had schedules of its own for what expires loses them, and nothing else."""

import asyncpg

from paddock.db.migrate import migrate, migration_folders
from tests.conftest import Server

OLD = """
INSERT INTO kinds (name, backoff_first, backoff_cap, failure_limit, cluster_limit, loss_limit, patience, may_repeat, serial,
                   internal, housekeeping, has_cleanup, has_end_hook)
SELECT name, '1 min', '5 min', 5, 5, 5, '0', true, true, true, true, false, false
FROM unnest(ARRAY['expire_exports', 'expire_dumps', 'collect_leftovers']) AS name;
INSERT INTO schedules (name, kind, every, owner, internal)
VALUES ('expire-exports', 'expire_exports', '1 min', 'system', true), ('expire-dumps', 'expire_dumps', '1 min', 'system', true),
       ('collect-leftovers', 'collect_leftovers', '1 h', 'system', true);
INSERT INTO jobs (id, kind, status, owner, payload, due_at, created_at, priority)
SELECT paddock_id(paddock_now()), name, 'pending', 'system', '{}', paddock_now(), paddock_now(), 3 FROM kinds;
"""


async def test_the_older_schedules_their_waiting_jobs_and_kinds_go(postgres: Server) -> None:
    dsn = await postgres.create_database("before_background_jobs")
    folders = migration_folders()
    await migrate(dsn, {owner: folder for owner, folder in folders.items() if owner != "background"})
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(OLD)
        assert await migrate(dsn) == ["background/0001_background_jobs", "background/0002_pods_in_order"]
        for table, column in (("schedules", "kind"), ("kinds", "name"), ("jobs", "kind")):
            rows = await connection.fetch(f"SELECT {column} AS name FROM {table}")
            assert [row["name"] for row in rows] == ["collect_leftovers"], table
    finally:
        await connection.close()
