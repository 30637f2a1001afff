-- name: clock (durable)
SELECT paddock_now();

-- name: ensure_job (durable)
INSERT INTO background_jobs (name) VALUES ($1) ON CONFLICT DO NOTHING;

-- name: place (durable)
SELECT paddock_now() AS now, b.cursor, b.notes FROM (SELECT) nothing LEFT JOIN background_jobs b ON b.name = $1;

-- name: still_ours (durable)
-- Whoever takes the job over waits until this transaction has ended.
SELECT true FROM jobs WHERE id = $1 AND attempt_id = $2 FOR SHARE;

-- name: end_pass (durable)
-- In the transaction that ends the job. `misfired` are runs that its schedule left out since the last end.
WITH before AS (SELECT misfires FROM background_jobs WHERE name = $1 FOR UPDATE)
UPDATE background_jobs b
SET last_job_id = $2, last_status = $3, last_started_at = $4, last_ended_at = paddock_now(), duration_seconds = $5, error = $6,
    last_success_at = CASE WHEN $3 = 'success' THEN paddock_now() ELSE b.last_success_at END,
    failures_in_a_row = CASE $3 WHEN 'success' THEN 0 WHEN 'failed' THEN b.failures_in_a_row + 1 ELSE b.failures_in_a_row END,
    failing_since = CASE $3 WHEN 'success' THEN NULL WHEN 'failed' THEN coalesce(b.failing_since, paddock_now()) ELSE b.failing_since END,
    found = CASE WHEN $3 = 'success' THEN $7::jsonb ELSE b.found END,
    cursor = CASE WHEN $3 = 'success' THEN $8::jsonb ELSE b.cursor END,
    notes = CASE WHEN $3 = 'success' THEN $9::jsonb ELSE b.notes END,
    misfires = coalesce((SELECT skipped FROM schedules WHERE name = $1), b.misfires)
FROM before
WHERE b.name = $1
RETURNING b.name, b.failures_in_a_row, b.last_success_at, b.found, b.misfires - before.misfires AS misfired;

-- name: states (relaxed)
-- All of them with their schedules, and the live job of each that runs, or else that waits.
SELECT b.*, s.every, s.enabled, s.next_at, live.id AS live_id, live.status AS live_status,
       CASE WHEN live.attempt_id IS NULL THEN live.due_at END AS waits_since, paddock_now() AS now
FROM background_jobs b
JOIN schedules s ON s.name = b.name
LEFT JOIN LATERAL (
    SELECT j.id, j.status, j.attempt_id, j.due_at FROM jobs j WHERE j.kind = b.name AND j.cleanup_of IS NULL
    ORDER BY j.attempt_id IS NULL, j.due_at LIMIT 1) live ON true;

-- name: job_for_trigger (durable)
SELECT last_triggered_at, paddock_now() AS now FROM background_jobs WHERE name = $1 FOR UPDATE;

-- name: triggered (durable)
UPDATE background_jobs SET last_triggered_at = paddock_now(), last_trigger = $2 WHERE name = $1;

-- name: unpolled (relaxed)
-- Submitted jobs of the kind that are due for so long, while no live worker offers it.
SELECT count(*) FROM (
    SELECT FROM jobs j WHERE j.kind = $1 AND j.lane = 0 AND j.attempt_id IS NULL AND j.cleanup_of IS NULL
      AND j.due_at < paddock_now() - $2::interval LIMIT 1000) due
WHERE NOT EXISTS (SELECT FROM sessions s WHERE s.expires_at > paddock_now() AND NOT s.dying AND $1 = ANY (s.kinds));

-- name: unsettled_groups (relaxed)
SELECT count(*) FROM groups WHERE hook_due AND kind = $1;

-- name: ended_last_day (relaxed)
SELECT status, sum(n)::bigint AS n FROM job_stats
WHERE kind = $1 AND width = 600 AND bucket > paddock_now() - interval '1 day' GROUP BY status;

-- name: waiting_of_kind (relaxed)
SELECT (SELECT count(*) FROM (SELECT FROM jobs WHERE kind = $1 AND lane BETWEEN 1 AND 4 AND attempt_id IS NULL LIMIT $2) w) AS pending,
       (SELECT count(*) FROM (SELECT FROM jobs WHERE kind = $1 AND lane = 0 AND attempt_id IS NULL AND cleanup_of IS NULL LIMIT $2) w) AS submitted,
       (SELECT count(*) FROM jobs WHERE kind = $1 AND attempt_id IS NOT NULL AND cleanup_of IS NULL) AS claimed;

-- name: tell_expiring (durable)
-- Nothing: it was told already, for this very end.
INSERT INTO expiring_instances AS e (instance_id, expires_at) VALUES ($1, $2)
ON CONFLICT (instance_id) DO UPDATE SET expires_at = excluded.expires_at WHERE e.expires_at <> excluded.expires_at
RETURNING true;

-- name: forget_expired (durable)
DELETE FROM expiring_instances WHERE expires_at < paddock_now() - interval '1 day';

-- name: other_pass_waits (durable)
SELECT EXISTS (SELECT FROM jobs WHERE kind = $1 AND attempt_id IS NULL);
