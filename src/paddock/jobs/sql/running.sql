-- name: held_by_sessions (relaxed)
-- What each of these sessions runs, the longest first, at most $2 of each.
SELECT s.id AS session_id, held.* FROM unnest($1::uuid[]) AS s(id) CROSS JOIN LATERAL (
    SELECT j.id, j.kind, j.owner, j.claimed_by, j.claimed_at, j.report, j.cleanup_of IS NOT NULL AS cleanup FROM jobs j
    WHERE j.session_id = s.id AND j.attempt_id IS NOT NULL ORDER BY j.claimed_at, j.id LIMIT $2) held;

-- name: lost_by_sessions (relaxed)
-- What each of these sessions held when it died. A worker that starts again has the same name: what it claimed then is
-- not this session's.
SELECT s.id AS session_id, lost.* FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::timestamptz[])
    AS s(id, worker_id, started_at, expires_at) CROSS JOIN LATERAL (
    SELECT t.job_id, t.event, t.at FROM job_timeline t
    WHERE t.worker = s.worker_id AND t.event IN ('rescued', 'worker_lost')
      AND t.claimed_at >= s.started_at AND t.claimed_at <= s.expires_at
    ORDER BY t.worker DESC, t.id DESC LIMIT $5) lost;

-- name: late_sessions (relaxed)
-- Half of the lease has passed since the last beat.
SELECT id FROM sessions WHERE expires_at > paddock_now() AND paddock_now() - beat_at > (expires_at - beat_at) / 2;

-- name: running_long (relaxed)
-- What has been claimed for longer than $1, the longest first. `overdue`: its worker had $1 more than a time-out to stop it.
SELECT j.id, j.kind, j.claimed_at, make_interval(secs => j.run_seconds) + (paddock_now() - j.claimed_at) AS ran,
       coalesce(paddock_now() - j.started_at > k.total_timeout + $1, false)
       OR coalesce(paddock_now() - j.claimed_at > k.turn_timeout + $1, false)
       OR coalesce(paddock_now() - greatest(j.claimed_at, j.saved_at) + make_interval(secs => j.unsaved_seconds)
                   > k.stall_timeout + $1, false) AS overdue
FROM jobs j JOIN kinds k ON k.name = j.kind
WHERE j.attempt_id IS NOT NULL AND j.claimed_at < paddock_now() - $1::interval
ORDER BY j.claimed_at LIMIT $2;

-- name: usual_run (relaxed)
SELECT kind, {sum_run} AS run_histogram FROM job_stats
WHERE width = 600 AND bucket >= paddock_now() - interval '7 days' AND status = 'completed' AND kind = ANY ($1::text[])
GROUP BY kind;
