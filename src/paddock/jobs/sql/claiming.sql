-- name: claim_jobs (relaxed)
-- Takes up to $7 due jobs of the given (kind, lane) pairs, by lane then due time; with $9 the oldest whatever its lane.
-- `peek` reads without locking how many each pair deserves, `taken` locks just so many: a multi-kind claim
-- locks no row that it does not take, and SKIP LOCKED shifts to the next ones when another claim was faster.
-- due_at >= the cursor is a leading bound of jobs_due: dead index entries before it are never walked.
-- A repeated claim_id takes nothing: its answer was lost, `claimed_before` finds what it got.
-- $11 is a fresh secret of this claim; hashed with the id it is a random token for each row. (gen_random_uuid opens
-- /dev/urandom for each row where PostgreSQL is built without OpenSSL: a quarter of this statement.)
-- Two claims of a serial kind at once: the loser violates jobs_serial and is repeated by the caller.
WITH pair AS (
    SELECT p.kind, p.lane, p.cursor, k.serial, CASE WHEN k.serial THEN least(p.cap, 1) ELSE p.cap END AS cap
    FROM unnest($3::text[], $4::smallint[], $5::timestamptz[], $6::int[]) AS p(kind, lane, cursor, cap)
    JOIN kinds k ON k.name = p.kind
    WHERE (p.lane = 0 OR NOT k.paused)
      AND (NOT k.serial OR NOT EXISTS (SELECT FROM jobs r WHERE r.kind = p.kind AND r.serial AND r.attempt_id IS NOT NULL))
      AND EXISTS (SELECT FROM sessions s WHERE s.id = $1 AND s.expires_at > paddock_now() AND NOT s.quiet)
      AND NOT EXISTS (SELECT FROM jobs m WHERE m.session_id = $1 AND m.claim_id = $2 AND m.attempt_id IS NOT NULL)
), peek AS (
    SELECT p.kind, p.lane, p.cursor, p.cap,
           row_number() OVER (PARTITION BY $8::int IS NOT NULL AND p.lane = 0
                              ORDER BY CASE WHEN $9::boolean THEN 0 ELSE p.lane END, j.due_at, j.id) AS place,
           row_number() OVER (PARTITION BY p.kind, $8::int IS NOT NULL AND p.lane = 0 AND NOT p.serial
                              ORDER BY CASE WHEN $9::boolean THEN 0 ELSE p.lane END, j.due_at, j.id) AS place_in_kind
    FROM pair p CROSS JOIN LATERAL (
        SELECT due_at, id FROM jobs
        WHERE kind = p.kind AND lane = p.lane AND attempt_id IS NULL AND due_at >= p.cursor AND due_at <= paddock_now()
        ORDER BY due_at, id LIMIT least(p.cap, CASE WHEN p.lane = 0 THEN coalesce($8::int, $7::int) ELSE $7::int END)) j
), share AS (
    SELECT kind, lane, cursor, count(*) AS n FROM peek
    WHERE place <= CASE WHEN lane = 0 THEN coalesce($8::int, $7::int) ELSE $7::int END AND place_in_kind <= cap
    GROUP BY kind, lane, cursor
), taken AS MATERIALIZED (
    SELECT t.id FROM share s CROSS JOIN LATERAL (
        SELECT id FROM jobs
        WHERE kind = s.kind AND lane = s.lane AND attempt_id IS NULL AND due_at >= s.cursor AND due_at <= paddock_now()
        ORDER BY due_at, id LIMIT s.n FOR UPDATE SKIP LOCKED) t
)
UPDATE jobs j
SET status = 'claimed', attempt_id = md5($11::text || j.id)::uuid, session_id = $1, claim_id = $2, claimed_by = $10,
    claimed_at = paddock_now(), unlisted = 0, turn_count = j.turn_count + 1,
    started_at = coalesce(j.started_at, paddock_now()),
    wait_seconds = j.wait_seconds + date_part('epoch', paddock_now() - j.due_at)
-- Locked above, so unclaimed; to say so again here would tempt the planner to walk all of jobs_due.
WHERE j.id = ANY (ARRAY(SELECT id FROM taken))
RETURNING j.id, j.attempt_id, j.kind, j.lane, j.due_at, j.claimed_at, j.payload, j.owner, j.turn_count,
          date_part('epoch', paddock_now() - j.started_at) AS age_seconds, j.unsaved_seconds, j.failure_count, j.lost_count,
          j.tags, j.saved, j.role, j.waiting_on, j.cleanup_of, j.parent_id, j.traceparent;

-- name: claim_only (relaxed)
-- For `worker --once`: the given jobs, their cleanups and their follow-ups, and nothing else.
WITH related AS (
    SELECT id FROM jobs WHERE id = ANY ($3::uuid[])
    UNION SELECT id FROM jobs WHERE cleanup_of = ANY ($3::uuid[])
    UNION SELECT id FROM jobs WHERE parent_id = ANY ($3::uuid[])
), taken AS MATERIALIZED (
    SELECT j.id FROM jobs j JOIN kinds k ON k.name = j.kind
    WHERE j.id = ANY (ARRAY(SELECT id FROM related)) AND j.attempt_id IS NULL AND j.due_at <= paddock_now()
      AND j.kind = ANY ($4::text[]) AND (j.lane = 0 OR NOT k.paused)
      AND EXISTS (SELECT FROM sessions s WHERE s.id = $1 AND s.expires_at > paddock_now())
    ORDER BY j.lane, j.due_at LIMIT $5 FOR UPDATE OF j SKIP LOCKED
)
UPDATE jobs j
SET status = 'claimed', attempt_id = md5($7::text || j.id)::uuid, session_id = $1, claim_id = $2, claimed_by = $6,
    claimed_at = paddock_now(), unlisted = 0, turn_count = j.turn_count + 1,
    started_at = coalesce(j.started_at, paddock_now()),
    wait_seconds = j.wait_seconds + date_part('epoch', paddock_now() - j.due_at)
-- Locked above, so unclaimed; to say so again here would tempt the planner to walk all of jobs_due.
WHERE j.id = ANY (ARRAY(SELECT id FROM taken))
RETURNING j.id, j.attempt_id, j.kind, j.lane, j.due_at, j.claimed_at, j.payload, j.owner, j.turn_count,
          date_part('epoch', paddock_now() - j.started_at) AS age_seconds, j.unsaved_seconds, j.failure_count, j.lost_count,
          j.tags, j.saved, j.role, j.waiting_on, j.cleanup_of, j.parent_id, j.traceparent;

-- name: any_related (relaxed)
SELECT EXISTS (SELECT FROM jobs WHERE id = ANY ($1::uuid[]))
    OR EXISTS (SELECT FROM jobs WHERE cleanup_of = ANY ($1::uuid[]))
    OR EXISTS (SELECT FROM jobs WHERE parent_id = ANY ($1::uuid[]));

-- name: claimed_before (relaxed)
SELECT j.id, j.attempt_id, j.kind, j.lane, j.due_at, j.claimed_at, j.payload, j.owner, j.turn_count,
       date_part('epoch', paddock_now() - j.started_at) AS age_seconds, j.unsaved_seconds, j.failure_count, j.lost_count,
       j.tags, j.saved, j.role, j.waiting_on, j.cleanup_of, j.parent_id, j.traceparent
FROM jobs j WHERE j.session_id = $1 AND j.claim_id = $2 AND j.attempt_id IS NOT NULL;

-- name: next_due (relaxed)
-- How long until something of these kinds is due; null when nothing waits.
SELECT date_part('epoch', min(n.due_at) - paddock_now())::float8 FROM unnest($1::text[]) AS p(kind)
CROSS JOIN generate_series(0, 4) AS l(lane)
CROSS JOIN LATERAL (
    SELECT due_at FROM jobs
    WHERE kind = p.kind AND jobs.lane = l.lane AND attempt_id IS NULL
      AND due_at > paddock_now() AND due_at < 'infinity'
    ORDER BY due_at LIMIT 1) n;

-- name: due_kinds (relaxed)
-- The sweep: what is due, from the beginning of time, one row for each (kind, lane).
SELECT p.kind, l.lane::smallint AS lane FROM unnest($1::text[]) AS p(kind)
CROSS JOIN generate_series(0, 4) AS l(lane)
CROSS JOIN LATERAL (
    SELECT FROM jobs
    WHERE kind = p.kind AND jobs.lane = l.lane AND attempt_id IS NULL AND due_at <= paddock_now() LIMIT 1) due;
