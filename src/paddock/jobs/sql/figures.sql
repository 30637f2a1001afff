-- name: one_pass_at_a_time (durable)
SELECT pg_advisory_xact_lock(7233, 2);

-- name: progress (durable)
-- Never counted: the last minutes are enough to begin with. `now` is the one time of the whole pass.
SELECT paddock_now() AS now,
       coalesce((SELECT counted_to FROM figures_progress), paddock_now() - interval '25 minutes') AS counted_to;

-- name: keep_progress (durable)
INSERT INTO figures_progress (counted_to) VALUES ($1)
ON CONFLICT (one) DO UPDATE SET counted_to = excluded.counted_to;

-- name: count_ended (durable)
-- Counts history between two times into 10 s buckets. What was counted before is replaced by the same or a higher
-- figure (history never shrinks), so that a repeated or late pass ends with the same rows. Unchanged rows are not written.
INSERT INTO job_stats (width, bucket, kind, status, n, run_seconds, wait_seconds, run_histogram, wait_histogram)
SELECT 10, bucket, kind, status, count(*), sum(run_seconds), sum(wait_seconds), {count_run}, {count_wait}
FROM (
    SELECT date_bin('10 s', completed_at, '2000-01-01Z') AS bucket, kind, status, run_seconds, wait_seconds,
           width_bucket(run_seconds, $3::float8[]) AS run_bucket, width_bucket(wait_seconds, $3::float8[]) AS wait_bucket
    FROM job_history
    WHERE completed_at >= $1 AND completed_at < $2 AND cleanup_of IS NULL
      AND kind <> ALL (ARRAY(SELECT name FROM kinds WHERE housekeeping))
) ended
GROUP BY bucket, kind, status
ON CONFLICT (width, bucket, kind, status) DO UPDATE
SET n = excluded.n, run_seconds = excluded.run_seconds, wait_seconds = excluded.wait_seconds,
    run_histogram = excluded.run_histogram, wait_histogram = excluded.wait_histogram
WHERE job_stats.n <> excluded.n;

-- name: count_errors (durable)
INSERT INTO error_stats (width, bucket, kind, code, n, mistakes, first_job, last_job, first_at, last_at)
SELECT 10, date_bin('10 s', completed_at, '2000-01-01Z'), kind, error_code, count(*),
       count(*) FILTER (WHERE (errors->-1->>'mistake')::boolean), min(id::text)::uuid, max(id::text)::uuid,
       min(completed_at), max(completed_at)
FROM job_history
WHERE completed_at >= $1 AND completed_at < $2 AND cleanup_of IS NULL AND status = 'failed' AND error_code IS NOT NULL
  AND kind <> ALL (ARRAY(SELECT name FROM kinds WHERE housekeeping))
GROUP BY 2, kind, error_code
ON CONFLICT (width, bucket, kind, code) DO UPDATE
SET n = excluded.n, mistakes = excluded.mistakes, first_job = excluded.first_job, last_job = excluded.last_job, first_at = excluded.first_at,
    last_at = excluded.last_at
WHERE error_stats.n <> excluded.n;

-- name: roll_ended (durable)
-- The buckets of width $4 that begin between two times, from those of width $3. Both times are multiples of $4.
INSERT INTO job_stats (width, bucket, kind, status, n, run_seconds, wait_seconds, run_histogram, wait_histogram)
SELECT $4::int, date_bin(make_interval(secs => $4::int), bucket, '2000-01-01Z') AS wide, kind, status, sum(n), sum(run_seconds),
       sum(wait_seconds), {sum_run}, {sum_wait}
FROM job_stats WHERE width = $3 AND bucket >= $1 AND bucket < $2
GROUP BY wide, kind, status
ON CONFLICT (width, bucket, kind, status) DO UPDATE
SET n = excluded.n, run_seconds = excluded.run_seconds, wait_seconds = excluded.wait_seconds,
    run_histogram = excluded.run_histogram, wait_histogram = excluded.wait_histogram
WHERE job_stats.n <> excluded.n;

-- name: roll_errors (durable)
INSERT INTO error_stats (width, bucket, kind, code, n, mistakes, first_job, last_job, first_at, last_at)
SELECT $4::int, date_bin(make_interval(secs => $4::int), bucket, '2000-01-01Z') AS wide, kind, code, sum(n), sum(mistakes),
       min(first_job::text)::uuid, max(last_job::text)::uuid, min(first_at), max(last_at)
FROM error_stats WHERE width = $3 AND bucket >= $1 AND bucket < $2
GROUP BY wide, kind, code
ON CONFLICT (width, bucket, kind, code) DO UPDATE
SET n = excluded.n, mistakes = excluded.mistakes, first_job = excluded.first_job, last_job = excluded.last_job, first_at = excluded.first_at,
    last_at = excluded.last_at
WHERE error_stats.n <> excluded.n;

-- name: roll_samples (durable)
-- A wide bucket shows the highest of its samples: a short spike must not vanish from a long chart.
INSERT INTO queue_stats (width, bucket, kind, pending, claimed, submitted, oldest_due_seconds)
SELECT $4::int, date_bin(make_interval(secs => $4::int), bucket, '2000-01-01Z') AS wide, kind, max(pending), max(claimed),
       max(submitted), max(oldest_due_seconds)
FROM queue_stats WHERE width = $3 AND bucket >= $1 AND bucket < $2
GROUP BY wide, kind
ON CONFLICT (width, bucket, kind) DO UPDATE
SET pending = excluded.pending, claimed = excluded.claimed, submitted = excluded.submitted,
    oldest_due_seconds = excluded.oldest_due_seconds;

-- name: measure_queue (relaxed)
-- What waits and runs now, for each kind. A kind with up to $1 waiting jobs is counted; a larger one shows `many` and
-- is counted by `count_waiting`, seldom. Cleanups and housekeeping stay out. Oldest due: five index probes a kind.
WITH held AS MATERIALIZED (
    SELECT kind, count(*) AS n FROM jobs WHERE attempt_id IS NOT NULL AND cleanup_of IS NULL GROUP BY kind
)
SELECT k.name AS kind, waiting.n AS pending, waiting.n > $1 AS many, coalesce(h.n, 0) AS claimed, outside.n AS submitted,
       coalesce(extract(epoch FROM paddock_now() - oldest.due_at), 0)::float8 AS oldest_due_seconds
FROM kinds k
LEFT JOIN held h ON h.kind = k.name
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
    SELECT FROM jobs j WHERE j.kind = k.name AND j.lane BETWEEN 1 AND 4 AND j.attempt_id IS NULL LIMIT $1 + 1) w) waiting
CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE cleanup_of IS NULL) AS n FROM (
    SELECT j.cleanup_of FROM jobs j WHERE j.kind = k.name AND j.lane = 0 AND j.attempt_id IS NULL LIMIT 100000) w) outside
CROSS JOIN LATERAL (
    SELECT min(first.due_at) AS due_at FROM generate_series(0, 4) AS l(lane) CROSS JOIN LATERAL (
        SELECT j.due_at FROM jobs j
        WHERE j.kind = k.name AND j.lane = l.lane AND j.attempt_id IS NULL AND j.due_at <= paddock_now()
        ORDER BY j.due_at LIMIT 1) first) oldest
WHERE NOT k.housekeeping;

-- name: count_waiting (relaxed)
SELECT count(*) FROM jobs WHERE kind = $1 AND lane BETWEEN 1 AND 4 AND attempt_id IS NULL;

-- name: sample_before (relaxed)
SELECT pending, bucket FROM queue_stats WHERE width = 10 AND kind = $1 AND bucket < $2 AND bucket > $2 - interval '1 hour'
ORDER BY bucket DESC LIMIT 1;

-- name: keep_sample (durable)
INSERT INTO queue_stats (width, bucket, kind, pending, claimed, submitted, oldest_due_seconds)
SELECT 10, $1, i.* FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::float8[]) i
ON CONFLICT (width, bucket, kind) DO UPDATE
SET pending = excluded.pending, claimed = excluded.claimed, submitted = excluded.submitted,
    oldest_due_seconds = excluded.oldest_due_seconds;

-- name: prune (durable)
WITH ended AS (
    DELETE FROM job_stats WHERE width = $1 AND bucket < $2
), errors AS (
    DELETE FROM error_stats WHERE width = $1 AND bucket < $2
)
DELETE FROM queue_stats WHERE width = $1 AND bucket < $2;

-- name: ended_series (relaxed)
SELECT bucket, status, sum(n)::bigint AS n, {sum_run} AS run_histogram, {sum_wait} AS wait_histogram
FROM job_stats WHERE width = $1 AND bucket >= $2 AND bucket < $3 AND ($4::text IS NULL OR kind = $4)
GROUP BY bucket, status;

-- name: queue_series (relaxed)
SELECT bucket, sum(pending)::bigint AS backlog, sum(claimed)::bigint AS running, max(oldest_due_seconds) AS oldest_due
FROM queue_stats WHERE width = $1 AND bucket >= $2 AND bucket < $3 AND ($4::text IS NULL OR kind = $4)
GROUP BY bucket;

-- name: error_series (relaxed)
SELECT bucket, sum(n)::bigint AS n
FROM error_stats WHERE width = $1 AND bucket >= $2 AND bucket < $3 AND ($4::text IS NULL OR kind = $4)
GROUP BY bucket;

-- name: error_codes (relaxed)
SELECT kind, code, sum(n)::bigint AS n, min(first_job::text)::uuid AS first_job, max(last_job::text)::uuid AS last_job
FROM error_stats WHERE width = $1 AND bucket >= $2 AND bucket < $3 AND ($4::text IS NULL OR kind = $4)
GROUP BY kind, code ORDER BY 3 DESC, kind, code LIMIT $5;

-- name: clock (relaxed)
SELECT paddock_now();

-- name: note_versions (durable)
-- A deploy is seen where it arrives, at the start of its first session; what only went is seen now. Nobody at work is no
-- change: a single worker restarts. A session that was given up and beats again began before the set without it.
WITH live AS (
    SELECT CASE WHEN EXISTS (SELECT FROM kinds k WHERE k.internal AND k.name = ANY (s.kinds))
                THEN 'control plane' ELSE 'worker' END AS role, s.version, min(s.started_at) AS since
    FROM sessions s WHERE s.expires_at > paddock_now() AND NOT s.dying AND s.version <> '' GROUP BY 1, 2
), now_at_work AS (
    SELECT role, array_agg(version ORDER BY version) AS versions FROM live GROUP BY role
), newest AS (
    SELECT DISTINCT ON (role) role, versions, at FROM versions_at_work ORDER BY role, at DESC
)
INSERT INTO versions_at_work (role, at, versions)
SELECT w.role, coalesce((SELECT min(l.since) FROM live l
                         WHERE l.role = w.role AND l.version <> ALL (n.versions) AND l.since > n.at), paddock_now()), w.versions
FROM now_at_work w LEFT JOIN newest n ON n.role = w.role
WHERE n.versions IS DISTINCT FROM w.versions
ON CONFLICT DO NOTHING;
