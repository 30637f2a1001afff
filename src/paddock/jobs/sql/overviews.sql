-- name: newest_sample (relaxed)
-- The newest sample of each kind. Older than two minutes is no sample: nobody took one.
SELECT kind, bucket, pending, claimed, submitted, oldest_due_seconds FROM queue_stats
WHERE width = 10 AND bucket = (SELECT bucket FROM queue_stats WHERE width = 10 AND bucket > paddock_now() - interval '2 minutes'
                               ORDER BY bucket DESC LIMIT 1);

-- name: ended_counts (relaxed)
SELECT kind, status, sum(n)::bigint AS n FROM job_stats
WHERE width = 600 AND bucket >= date_bin('600 s', paddock_now() - $1::interval, '2000-01-01Z')
GROUP BY kind, status;

-- name: owner_counts (relaxed)
-- The newest $4 live jobs, the newest $3 of each kind and status that ended, and not one more: an owner with millions
-- costs no more than one with thousands.
WITH live AS (
    SELECT kind, status, cleanup_of FROM jobs WHERE owner = $1 ORDER BY owner DESC, id DESC LIMIT $4
), ended AS (
    SELECT j.* FROM kinds k CROSS JOIN unnest('{completed,failed,cancelled}'::text[]) AS u(status) CROSS JOIN LATERAL (
        SELECT j.kind, j.status, j.cleanup_of FROM job_history j
        WHERE (j.owner, j.kind, j.status, j.id) > ($1, k.name, u.status, paddock_least_id(paddock_now() - $2::interval))
          AND (j.owner, j.kind, j.status, j.id) <= ($1, k.name, u.status, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY j.owner DESC, j.kind DESC, j.status DESC, j.id DESC LIMIT $3) j
    WHERE NOT k.housekeeping
), own AS (
    SELECT * FROM live
    UNION ALL
    SELECT * FROM ended
)
SELECT kind, status, count(*) AS n,
       (SELECT count(*) FROM live) < $4
       AND NOT EXISTS (SELECT FROM ended GROUP BY kind, status HAVING count(*) >= $3) AS complete
FROM own
WHERE cleanup_of IS NULL AND kind <> ALL (ARRAY(SELECT name FROM kinds WHERE housekeeping))
GROUP BY kind, status;

-- name: timeline_rows (relaxed)
SELECT * FROM (SELECT * FROM job_timeline WHERE job_id = $1 ORDER BY id DESC LIMIT $2) newest ORDER BY id;

-- name: related_jobs (relaxed)
-- What a job came from, what came of it ($3 of each at most), and those of $2 that it names itself. Each source is an
-- index; OFFSET 0 keeps the planner from walking one it likes better.
WITH named AS MATERIALIZED (
    SELECT 'parent' AS relation, parent_id AS id FROM jobs WHERE id = $1 AND parent_id IS NOT NULL
    UNION ALL
    SELECT 'parent', parent_id FROM job_history WHERE id = $1 AND parent_id IS NOT NULL
    UNION ALL
    SELECT 'named', id FROM unnest($2::uuid[]) AS id
    UNION ALL
    (SELECT 'follow_up', id FROM (SELECT id FROM jobs WHERE parent_id = $1 OFFSET 0) j LIMIT $3)
    UNION ALL
    (SELECT 'follow_up', id FROM (SELECT id FROM job_history WHERE parent_id = $1 OFFSET 0) j LIMIT $3)
    UNION ALL
    (SELECT 'cleanup', id FROM (SELECT id FROM jobs WHERE cleanup_of = $1 OFFSET 0) j LIMIT 1)
    UNION ALL
    (SELECT 'cleanup', id FROM (SELECT id FROM job_history WHERE cleanup_of = $1 OFFSET 0) j LIMIT 1)
), found AS (
    SELECT id, kind, status, owner, created_at, started_at, NULL::timestamptz AS completed_at
    FROM jobs WHERE id = ANY (ARRAY(SELECT id FROM named))
    UNION ALL
    SELECT id, kind, status, owner, created_at, started_at, completed_at
    FROM job_history WHERE id = ANY (ARRAY(SELECT id FROM named))
)
SELECT n.relation, f.* FROM named n JOIN found f ON f.id = n.id ORDER BY f.id;

-- name: sessions_seen (relaxed)
-- The sessions after a place, the live ones first, and how much each holds; what runs is far less than what waits.
-- Ordered by what no beat changes: one that dies between two pages comes twice rather than never.
WITH held AS MATERIALIZED (
    SELECT session_id, count(*) AS running FROM jobs WHERE attempt_id IS NOT NULL GROUP BY session_id
)
SELECT s.*, s.expires_at > paddock_now() AS live, coalesce(h.running, 0) AS running
FROM sessions s LEFT JOIN held h ON h.session_id = s.id
WHERE $2::boolean IS NULL OR (s.expires_at > paddock_now(), s.started_at, s.id) < ($2, $3::timestamptz, $4::uuid)
ORDER BY s.expires_at > paddock_now() DESC, s.started_at DESC, s.id DESC LIMIT $1;

-- name: version_changes (relaxed)
-- The first of all is none: there was nothing before it.
SELECT * FROM (
    SELECT role, at, versions AS after, lag(versions) OVER (PARTITION BY role ORDER BY at) AS before
    FROM versions_at_work) change
WHERE at >= $1 AND before IS NOT NULL ORDER BY at DESC LIMIT $2;

-- name: retried (relaxed)
-- Of a kind, what failed for the moment and waits for its next try; the oldest $2 that waits again at all is looked at.
SELECT count(*) AS n, min(started_at) AS since FROM (
    SELECT started_at, failure_count + cluster_count AS failures FROM jobs
    WHERE kind = $1 AND attempt_id IS NULL AND started_at IS NOT NULL AND started_at <= paddock_now()
    ORDER BY started_at LIMIT $2) again
WHERE failures > 0;

-- name: kinds_seen (relaxed)
-- For kinds with a scaler, whether a job has been due for longer than the $1 that a worker takes to come. Nobody comes for
-- what a pause holds back.
SELECT k.*, EXISTS (SELECT FROM sessions s WHERE s.expires_at > paddock_now() AND NOT s.dying AND k.name = ANY (s.kinds)) AS offered,
       k.scaled AND EXISTS (
           SELECT FROM generate_series(CASE WHEN k.paused THEN 0 ELSE 4 END, 0, -1) AS l(lane) CROSS JOIN LATERAL (
               SELECT FROM jobs j WHERE j.kind = k.name AND j.lane = l.lane AND j.attempt_id IS NULL
                                    AND j.due_at <= paddock_now() - $1::interval LIMIT 1) late) AS kept_waiting
FROM kinds k ORDER BY k.name;

-- name: declare_scaled (durable)
UPDATE kinds SET scaled = (name = ANY ($1::text[])) WHERE scaled <> (name = ANY ($1::text[]));

-- name: clock (relaxed)
SELECT paddock_now();
