-- name: due_schedules (durable)
-- Whoever looks first holds the row until the job is in; another replica passes over it. Held back in drain mode, but
-- for housekeeping: their next time stays as it is, and one run catches up afterwards. A kind this replica does not
-- know is left to one that does (an upgrade is under way) for ten minutes; then it is a problem to be noted. Of one of
-- Paddock's own only the run that was due last is in the way: a run by hand that swallowed the due one would shift it by a
-- whole interval.
SELECT s.*, paddock_now() AS now,
       EXISTS (SELECT FROM jobs j WHERE j.schedule = s.name AND j.owner = s.owner AND j.cleanup_of IS NULL
                 AND (NOT s.internal OR j.id = s.due_job_id)) AS still_live
FROM schedules s
WHERE s.enabled AND s.next_at <= paddock_now()
  AND (s.kind = ANY ($3::text[]) OR s.next_at < paddock_now() - interval '10 minutes')
  AND (NOT $2 OR EXISTS (SELECT FROM kinds k WHERE k.name = s.kind AND k.housekeeping))
ORDER BY s.next_at LIMIT $1 FOR UPDATE OF s SKIP LOCKED;

-- name: any_due (relaxed)
SELECT EXISTS (SELECT FROM schedules WHERE enabled AND next_at <= paddock_now());

-- name: draining (durable)
SELECT paddock_draining();

-- name: drain_reason (durable)
SELECT drain_reason FROM service;

-- name: schedule_ran (durable)
UPDATE schedules SET next_at = $2, last_at = $3, last_job_id = $4, due_job_id = $4, last_problem = NULL WHERE name = $1;

-- name: due_after_failures (durable)
-- $2 are jobs of these schedules that failed just now. One of Paddock's own is due again a minute later, or two, four and so
-- on after more failures in a row, and never later than its interval: a daily one is not a day late, and none spins. A run
-- that somebody asked for shifts nothing.
UPDATE schedules s
SET next_at = paddock_now() + least(s.every, interval '1 minute' * power(2, greatest(failed.n, 1) - 1))
FROM schedules named
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT bool_and(run.status = 'failed') OVER (ORDER BY run.id DESC) AS in_a_row
        FROM (SELECT h.id, h.status FROM job_history h WHERE h.schedule = named.name AND h.cleanup_of IS NULL
              ORDER BY h.id DESC LIMIT 20) run) runs
    WHERE in_a_row) failed
WHERE named.name = ANY ($1::text[]) AND named.internal AND named.every IS NOT NULL AND named.due_job_id = ANY ($2::uuid[])
  AND s.name = named.name;

-- name: schedule_sooner (durable)
-- One of Paddock's own whose run found that it had come too early. What is due before that stays as it is.
UPDATE schedules SET next_at = least(next_at, paddock_now() + $2::interval) WHERE name = $1 AND internal;

-- name: schedules_to_pull_back (durable)
SELECT s.*, paddock_now() AS now FROM schedules s WHERE enabled ORDER BY name FOR UPDATE;

-- name: schedule_pulled_back (durable)
UPDATE schedules SET next_at = least(next_at, $2), last_at = CASE WHEN last_at > paddock_now() THEN paddock_now() ELSE last_at END
WHERE name = $1;

-- name: schedule_skipped (durable)
UPDATE schedules SET next_at = $2, skipped = skipped + 1 WHERE name = $1;

-- name: schedule_failed (durable)
UPDATE schedules SET next_at = $2, last_at = $3, last_problem = $4 WHERE name = $1;

-- name: schedule_ran_now (durable)
-- The time of the next run stays.
UPDATE schedules SET last_at = paddock_now(), last_job_id = $2, last_problem = NULL WHERE name = $1;

-- name: lock_owner (durable)
SELECT pg_advisory_xact_lock(7237, hashtext($1));

-- name: count_of_owner (durable)
SELECT count(*) FROM schedules WHERE owner = $1 AND NOT internal;

-- name: insert_schedule (durable)
INSERT INTO schedules (name, kind, payload, every, cron, timezone, priority, tags, owner, enabled, next_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (name) DO NOTHING
RETURNING *;

-- name: ensure_schedule (durable)
-- A running schedule keeps its time unless its interval changed.
INSERT INTO schedules AS s (name, kind, payload, every, owner, internal, priority, next_at)
VALUES ($1, $2, $3, $4, 'system', true, $5, paddock_now())
ON CONFLICT (name) DO UPDATE
SET kind = excluded.kind, payload = excluded.payload, every = excluded.every, cron = NULL, internal = true,
    priority = excluded.priority, next_at = CASE WHEN s.every = excluded.every THEN s.next_at ELSE excluded.next_at END
WHERE (s.kind, s.payload, s.every, s.internal, s.priority)
      IS DISTINCT FROM (excluded.kind, excluded.payload, excluded.every, true, excluded.priority);

-- name: update_schedule (durable)
UPDATE schedules SET kind = $2, payload = $3, every = $4, cron = $5, timezone = $6, priority = $7, tags = $8, enabled = $9,
    next_at = $10, last_problem = NULL
WHERE name = $1 RETURNING *;

-- name: delete_schedule (durable)
DELETE FROM schedules WHERE name = $1 AND NOT internal RETURNING name;

-- name: schedule (durable)
SELECT * FROM schedules WHERE name = $1;

-- name: schedule_for_update (durable)
SELECT * FROM schedules WHERE name = $1 FOR UPDATE;

-- name: schedules_page (relaxed)
SELECT * FROM schedules
WHERE ($1::text IS NULL OR name > $1) AND ($2::text IS NULL OR owner = $2) AND ($3 OR NOT internal)
ORDER BY name LIMIT $4;

-- name: clock (durable)
SELECT paddock_now();

-- name: enabled_schedules (relaxed)
SELECT name, last_problem, last_at FROM schedules WHERE enabled AND name > $1 ORDER BY name LIMIT $2;

-- name: last_runs (relaxed)
-- The newest $2 jobs that each schedule made. A job is in one of the two tables; both are read in one snapshot. Those of an
-- earlier schedule of that name, which was somebody else's, are theirs alone to see.
SELECT s.name, run.id
FROM schedules s
CROSS JOIN LATERAL (
    (SELECT j.id FROM jobs j WHERE j.schedule = s.name AND j.owner = s.owner AND j.cleanup_of IS NULL
     ORDER BY j.id DESC LIMIT $2)
    UNION ALL
    (SELECT h.id FROM job_history h WHERE h.schedule = s.name AND h.owner = s.owner AND h.cleanup_of IS NULL
     ORDER BY h.id DESC LIMIT $2)
    ORDER BY id DESC LIMIT $2
) run
WHERE s.name = ANY ($1::text[])
ORDER BY s.name, run.id DESC;
