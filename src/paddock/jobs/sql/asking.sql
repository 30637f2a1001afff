-- name: is_offered (relaxed)
SELECT EXISTS (SELECT FROM sessions WHERE expires_at > paddock_now() AND NOT dying AND $1::text = ANY (kinds));

-- name: lock_questions (durable)
SELECT pg_advisory_xact_lock(7236, hashtext($1));

-- name: questions (durable)
-- In two parts, each with an index that leads to few rows: what waits by its kind, what runs by being held.
SELECT count(*) FROM (
    (SELECT FROM jobs WHERE kind = $3 AND attempt_id IS NULL AND owner = $1 LIMIT $2)
    UNION ALL (SELECT FROM jobs WHERE kind = $3 AND attempt_id IS NOT NULL AND owner = $1 LIMIT $2)) found;
