-- name: lock_attempts (relaxed)
-- Two copies of one batch (its answer was lost) come one after the other: the second then sees what the first stored.
-- In key order, so that two batches that share attempts cannot wait for each other.
SELECT pg_advisory_xact_lock(7234, key) FROM (
    SELECT DISTINCT hashtext(id::text) AS key FROM unnest($1::uuid[]) AS id ORDER BY key) keys;

-- name: append_logs (relaxed)
-- Fence: the attempt holds the job, or ended its last turn or the job itself. Anything else is dropped without a word.
-- LATERAL with LIMIT 1, not EXISTS: that may be planned as a hash of all history.
INSERT INTO job_logs (job_id, attempt_id, seq, lines, dropped_bytes)
SELECT DISTINCT ON (i.id, i.attempt_id, i.seq) i.id, i.attempt_id, i.seq, i.lines, i.dropped
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[]) AS i(id, attempt_id, seq, lines, dropped)
LEFT JOIN LATERAL (SELECT true AS its_own FROM jobs j
    WHERE j.id = i.id AND (j.attempt_id = i.attempt_id OR j.ended_by = i.attempt_id) LIMIT 1) live ON true
LEFT JOIN LATERAL (SELECT true AS its_own FROM job_history h WHERE h.id = i.id AND h.ended_by = i.attempt_id LIMIT 1) ended ON true
LEFT JOIN LATERAL (SELECT true AS there FROM job_logs l
    WHERE l.job_id = i.id AND l.attempt_id = i.attempt_id AND l.seq = i.seq LIMIT 1) before ON true
WHERE (live.its_own OR ended.its_own) AND before.there IS NULL
ORDER BY i.id, i.attempt_id, i.seq
RETURNING 1;

-- name: logs_before (relaxed)
SELECT at, attempt_id, seq, lines, dropped_bytes FROM job_logs
WHERE job_id = $1 AND (at, attempt_id, seq) < ($2, $3, $4)
ORDER BY at DESC, attempt_id DESC, seq DESC LIMIT $5;

-- name: logs_after (relaxed)
SELECT at, attempt_id, seq, lines, dropped_bytes FROM job_logs
WHERE job_id = $1 AND (at, attempt_id, seq) > ($2, $3, $4)
ORDER BY at, attempt_id, seq LIMIT $5;
