-- name: counted_to (relaxed)
SELECT paddock_now() AS now, (SELECT counted_to FROM figures_progress) AS counted_to;

-- name: ended_steps (relaxed)
-- All kinds together, in steps of $4, a multiple of the width $1.
SELECT date_bin($4::interval, bucket, '2000-01-01Z') AS at, sum(n) FILTER (WHERE status = 'completed')::bigint AS completed,
       sum(n) FILTER (WHERE status = 'failed')::bigint AS failed, {sum_run} AS run_histogram, {sum_wait} AS wait_histogram
FROM job_stats WHERE width = $1 AND bucket >= $2 AND bucket < $3
GROUP BY at;

-- name: queue_steps (relaxed)
-- The highest of each step: a short spike must not vanish from a long chart.
SELECT date_bin($4::interval, bucket, '2000-01-01Z') AS at, max(backlog)::bigint AS backlog, max(running)::bigint AS running,
       max(oldest_due) AS oldest_due
FROM (SELECT bucket, sum(pending) AS backlog, sum(claimed) AS running, max(oldest_due_seconds) AS oldest_due
      FROM queue_stats WHERE width = $1 AND bucket >= $2 AND bucket < $3 GROUP BY bucket) sampled
GROUP BY at;

-- name: error_groups (relaxed)
-- What failed since $2, the unfinished bucket included, and when the first and the last of it did.
SELECT kind, code, sum(n)::bigint AS n, sum(mistakes)::bigint AS mistakes, min(first_at) AS first_at, max(last_at) AS last_at, max(last_job::text)::uuid AS last_job
FROM error_stats WHERE width = $1 AND bucket >= $2
GROUP BY kind, code ORDER BY 3 DESC, kind, code LIMIT $3;
