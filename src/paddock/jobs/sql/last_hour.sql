-- name: ended_by_kind (relaxed)
SELECT kind, bucket, status, n FROM job_stats
WHERE width = 60 AND bucket >= $1 AND bucket < $2 AND status IN ('completed', 'failed');

-- name: clock (relaxed)
SELECT paddock_now();
