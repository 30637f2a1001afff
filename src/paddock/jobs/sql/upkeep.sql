-- name: clock (durable)
SELECT paddock_now();

-- name: partitions (durable)
-- The partitions of $1 and the tables that were one and are not yet dropped, with the day each begins on.
SELECT c.relname AS name, to_date(right(c.relname, 8), 'YYYYMMDD') AS begins, i.inhparent IS NOT NULL AS attached
FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
WHERE c.relnamespace = to_regnamespace(current_schema()::text) AND c.relkind = 'r' AND c.relname ~ ('^' || $1 || '_[0-9]{8}$')
ORDER BY c.relname;

-- name: short_lock_wait (durable)
-- A statement that waits for an exclusive lock holds up all that come after it: rather give up and come again.
-- Shorter than deadlock_timeout: should it ever wait in a circle with a writer, it is never the writer that fails.
SELECT set_config('lock_timeout', '500ms', true);

-- name: trim_housekeeping (durable)
-- All but the last $1 runs of each housekeeping kind that completed, failed or were cancelled, at most $2 of each in one go.
-- The order by all its columns keeps to the index of them.
WITH expired AS MATERIALIZED (
    SELECT old.id, old.completed_at FROM kinds k CROSS JOIN unnest('{completed,failed,cancelled}'::text[]) AS u(status)
    CROSS JOIN LATERAL (
        SELECT j.id FROM job_history j
        WHERE (j.kind, j.status, j.id) <= (k.name, u.status, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
          AND (j.kind, j.status, j.id) >= (k.name, u.status, '00000000-0000-0000-0000-000000000000')
        ORDER BY j.kind DESC, j.status DESC, j.id DESC OFFSET $1 LIMIT 1) edge
    CROSS JOIN LATERAL (
        SELECT j.id, j.completed_at FROM job_history j
        WHERE (j.kind, j.status, j.id) <= (k.name, u.status, edge.id)
          AND (j.kind, j.status, j.id) >= (k.name, u.status, '00000000-0000-0000-0000-000000000000')
        ORDER BY j.kind, j.status, j.id LIMIT $2) old
    WHERE k.housekeeping
)
DELETE FROM job_history h USING expired e WHERE h.id = e.id AND h.completed_at = e.completed_at;

-- name: trim_default_history (durable)
-- What is too old and lies in the default partition, where no DROP will take it.
DELETE FROM job_history_default WHERE (id, completed_at) IN (
    SELECT id, completed_at FROM job_history_default WHERE completed_at < $1 LIMIT $2);

-- name: trim_default_tags (durable)
-- The same of the tags of ended jobs. By their place: such rows never change, and while this reads none gets another's.
DELETE FROM job_history_tags_default WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM job_history_tags_default WHERE completed_at < $1 LIMIT $2));

-- name: trim_default_logs (durable)
DELETE FROM job_logs_default WHERE (job_id, at, attempt_id, seq) IN (
    SELECT job_id, at, attempt_id, seq FROM job_logs_default WHERE at < $1 LIMIT $2);

-- name: trim_logs (durable)
-- Keeps the last $2 bytes of each job that logged since $1. What goes is counted on the oldest chunk that stays.
WITH recent AS MATERIALIZED (
    SELECT DISTINCT job_id FROM job_logs WHERE at >= $1
), sized AS MATERIALIZED (
    SELECT l.job_id, l.at, l.attempt_id, l.seq, octet_length(l.lines) + l.dropped_bytes AS gone,
           sum(octet_length(l.lines)) OVER (PARTITION BY l.job_id ORDER BY l.at DESC, l.attempt_id DESC, l.seq DESC) AS size,
           row_number() OVER (PARTITION BY l.job_id ORDER BY l.at DESC, l.attempt_id DESC, l.seq DESC) AS place
    FROM job_logs l WHERE l.job_id = ANY (ARRAY(SELECT job_id FROM recent))
), expired AS MATERIALIZED (
    SELECT * FROM sized WHERE size > $2 AND place > 1 ORDER BY job_id, at LIMIT $3
), counted AS (
    SELECT job_id, sum(gone) AS gone, min(place) - 1 AS last_kept FROM expired GROUP BY job_id
), noted AS (
    UPDATE job_logs l SET dropped_bytes = l.dropped_bytes + c.gone
    FROM counted c JOIN sized s ON s.job_id = c.job_id AND s.place = c.last_kept
    WHERE l.job_id = s.job_id AND l.at = s.at AND l.attempt_id = s.attempt_id AND l.seq = s.seq
)
DELETE FROM job_logs l USING expired e
WHERE l.job_id = e.job_id AND l.at = e.at AND l.attempt_id = e.attempt_id AND l.seq = e.seq;

-- name: trim_timeline (durable)
-- Keeps the last $1 rows of each job among the newest $2 rows of all: only a job that has just grown can be too long.
WITH recent AS MATERIALIZED (
    SELECT job_id FROM (SELECT job_id FROM job_timeline ORDER BY id DESC LIMIT $2) newest GROUP BY job_id
), expired AS MATERIALIZED (
    SELECT old.id FROM recent r
    CROSS JOIN LATERAL (SELECT id FROM job_timeline t WHERE t.job_id = r.job_id ORDER BY id DESC OFFSET $1 LIMIT 1) edge
    CROSS JOIN LATERAL (SELECT id FROM job_timeline t WHERE t.job_id = r.job_id AND t.id <= edge.id ORDER BY id LIMIT $2) old
)
DELETE FROM job_timeline WHERE id = ANY (ARRAY(SELECT id FROM expired));

-- name: expire_timeline (durable)
-- Ids ascend with time: the oldest $2 rows, as far as they are too old.
DELETE FROM job_timeline WHERE at < $1 AND id = ANY (ARRAY(SELECT id FROM job_timeline ORDER BY id LIMIT $2));

-- name: expire_keys (durable)
DELETE FROM idempotency_keys WHERE (owner, route, key) IN (
    SELECT owner, route, key FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2);

-- name: expire_sessions (durable)
-- Only what holds nothing and what no cleanup waits for: the rescuer must be able to see whose jobs are orphans.
DELETE FROM sessions s WHERE s.id = ANY (ARRAY(
    SELECT o.id FROM sessions o
    WHERE o.expires_at < $1
      AND NOT EXISTS (SELECT FROM jobs j WHERE j.session_id = o.id AND j.attempt_id IS NOT NULL)
      AND NOT EXISTS (SELECT FROM jobs j WHERE j.after_attempt IS NOT NULL AND j.session_id = o.id)
    LIMIT $2)) AND s.expires_at < $1;

-- name: expire_versions (durable)
-- The newest set is noted anew by the next pass.
DELETE FROM versions_at_work WHERE (role, at) IN (SELECT role, at FROM versions_at_work WHERE at < $1 LIMIT $2);

-- name: expire_web_sessions (durable)
DELETE FROM web_sessions WHERE expires_at < $1;

-- name: expire_sign_in_links (durable)
DELETE FROM sign_in_links WHERE expires_at < $1;

-- name: expire_deliveries (durable)
DELETE FROM deliveries WHERE (event_id, job_id) IN (
    SELECT event_id, job_id FROM deliveries WHERE event_id < paddock_least_id($1) ORDER BY event_id LIMIT $2);

-- name: expire_events (durable)
DELETE FROM events WHERE id = ANY (ARRAY(
    SELECT id FROM events WHERE id < paddock_least_id($1) ORDER BY id LIMIT $2));

-- name: expire_audit_log (durable)
DELETE FROM audit_log WHERE id = ANY (ARRAY(
    SELECT id FROM audit_log WHERE id < paddock_least_id($1) ORDER BY id LIMIT $2));

-- name: expire_groups (durable)
-- Jobs end before their group does, so all but a few of those found have none left: $1 is where kept history begins.
-- `ended_at` once more at the row itself: a retry may have reopened the group meanwhile.
DELETE FROM groups g WHERE g.ended_at < $1 AND NOT g.hook_due AND g.id = ANY (ARRAY(
    SELECT o.id FROM groups o
    WHERE o.ended_at < $1 AND NOT o.hook_due
      AND NOT EXISTS (SELECT FROM jobs j WHERE j.group_id = o.id)
      AND NOT EXISTS (SELECT FROM job_history h WHERE h.group_id = o.id)
    ORDER BY o.ended_at LIMIT $2));
