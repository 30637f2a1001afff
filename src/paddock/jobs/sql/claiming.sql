-- name: claim_jobs (relaxed)
-- Takes up to $7 due jobs of the given (kind, lane) pairs, by lane then due time; with $9 the oldest whatever its lane.
-- `peek` reads without locking how many each pair deserves, `taken` locks just so many: a multi-kind claim
-- locks no row that it does not take, and SKIP LOCKED shifts to the next ones when another claim was faster.
-- due_at >= the cursor is a leading bound of jobs_due: dead index entries before it are never walked.
-- A repeated claim_id takes nothing: its answer was lost, `claimed_before` finds what it got. `marked` is for two at once,
-- which do not see each other's jobs: the second waits there for the first to commit, then looks at its mark and no more
-- at its own snapshot, lets go what it locked, and so gets what the first took. A mark that its snapshot shows is that of
-- an earlier claim whose jobs are no longer held: that one may take others.
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
), marked AS (
    UPDATE sessions SET claim_id = $2
    WHERE id = $1 AND EXISTS (SELECT FROM taken)
      AND (claim_id IS DISTINCT FROM $2 OR (SELECT s.claim_id FROM sessions s WHERE s.id = $1) = $2)
    RETURNING id
)
UPDATE jobs j
SET status = 'claimed', attempt_id = md5($11::text || j.id)::uuid, session_id = $1, claim_id = $2, claimed_by = $10,
    claimed_at = paddock_now(), unlisted = 0, turn_count = j.turn_count + 1,
    started_at = coalesce(j.started_at, paddock_now()),
    wait_seconds = j.wait_seconds + date_part('epoch', paddock_now() - j.due_at)
-- Locked above, so unclaimed; to say so again here would tempt the planner to walk all of jobs_due.
WHERE j.id = ANY (ARRAY(SELECT id FROM taken WHERE EXISTS (SELECT FROM marked)))
RETURNING j.id, j.attempt_id, j.kind, j.lane, j.due_at, j.claimed_at, j.payload, j.owner, j.turn_count,
          date_part('epoch', paddock_now() - j.started_at) AS age_seconds, j.unsaved_seconds, j.failure_count, j.lost_count,
          j.tags, j.saved, j.role, j.waiting_on, j.cleanup_of, j.parent_id, j.traceparent;

-- name: claim_shared (relaxed)
-- claim_jobs for kinds that have shares of the session's slots: up to $8 due jobs of the kinds $3, of each up to $4, by
-- lane then due time; so that the session holds of each owner $5 at most, and of each share key $6. $7 is as $11 there.
-- `waiting` steps along jobs_shared from one (owner, share key, lane) to the next: of whoever has its share already one
-- entry is read, however many wait. Of the oldest job that may go, nothing that bounds it can be used up by another:
-- where anything may go, something is taken, and a worker that has room left asks again. A repeated claim_id, and two at
-- once: as in claim_jobs.
WITH RECURSIVE kind AS (
    SELECT p.kind, p.cap, p.of_owner, p.of_key, k.paused
    FROM unnest($3::text[], $4::int[], $5::int[], $6::int[]) AS p(kind, cap, of_owner, of_key)
    JOIN kinds k ON k.name = p.kind
    WHERE EXISTS (SELECT FROM sessions s WHERE s.id = $1 AND s.expires_at > paddock_now() AND NOT s.quiet)
      AND NOT EXISTS (SELECT FROM jobs m WHERE m.session_id = $1 AND m.claim_id = $2 AND m.attempt_id IS NOT NULL)
), waiting AS (
    SELECT k.kind, first.owner, first.share_key, first.lane FROM kind k CROSS JOIN LATERAL (
        SELECT owner, share_key, lane FROM jobs
        WHERE kind = k.kind AND attempt_id IS NULL AND share_key IS NOT NULL
        ORDER BY owner, share_key, lane LIMIT 1) first
    UNION ALL
    SELECT w.kind, next.owner, next.share_key, next.lane FROM waiting w CROSS JOIN LATERAL (
        SELECT owner, share_key, lane FROM jobs
        WHERE kind = w.kind AND attempt_id IS NULL AND share_key IS NOT NULL
          AND (owner, share_key, lane) > (w.owner, w.share_key, w.lane)
        ORDER BY owner, share_key, lane LIMIT 1) next
), held AS MATERIALIZED (
    SELECT kind, owner, share_key FROM jobs WHERE session_id = $1 AND attempt_id IS NOT NULL AND share_key IS NOT NULL
), room AS MATERIALIZED (
    SELECT w.*, k.cap,
           k.of_owner - (SELECT count(*) FROM held h WHERE h.kind = w.kind AND h.owner = w.owner) AS of_owner,
           k.of_key - (SELECT count(*) FROM held h WHERE h.kind = w.kind AND h.share_key = w.share_key) AS of_key
    FROM waiting w JOIN kind k ON k.kind = w.kind
    WHERE w.lane = 0 OR NOT k.paused
), due AS (
    SELECT r.*, j.due_at, j.id,
           row_number() OVER (PARTITION BY r.kind, r.share_key ORDER BY r.lane, j.due_at, j.id) AS place_of_key
    FROM room r CROSS JOIN LATERAL (
        SELECT due_at, id FROM jobs
        WHERE kind = r.kind AND owner = r.owner AND share_key = r.share_key AND lane = r.lane AND attempt_id IS NULL
          AND due_at <= paddock_now()
        ORDER BY due_at, id LIMIT greatest(least(r.of_owner, r.of_key, r.cap, $8), 0)) j
), fair AS (
    SELECT *, row_number() OVER (PARTITION BY kind, owner ORDER BY lane, due_at, id) AS place_of_owner
    FROM due WHERE place_of_key <= of_key
), bounded AS (
    SELECT *, row_number() OVER (PARTITION BY kind ORDER BY lane, due_at, id) AS place_of_kind
    FROM fair WHERE place_of_owner <= of_owner
), share AS (
    SELECT kind, owner, share_key, lane, count(*) AS n
    FROM (SELECT *, row_number() OVER (ORDER BY lane, due_at, id) AS place FROM bounded WHERE place_of_kind <= cap) placed
    WHERE place <= $8 GROUP BY kind, owner, share_key, lane
), taken AS MATERIALIZED (
    SELECT t.id FROM share s CROSS JOIN LATERAL (
        SELECT id FROM jobs
        WHERE kind = s.kind AND owner = s.owner AND share_key = s.share_key AND lane = s.lane AND attempt_id IS NULL
          AND due_at <= paddock_now()
        ORDER BY due_at, id LIMIT s.n FOR UPDATE SKIP LOCKED) t
), marked AS (
    UPDATE sessions SET claim_id = $2
    WHERE id = $1 AND EXISTS (SELECT FROM taken)
      AND (claim_id IS DISTINCT FROM $2 OR (SELECT s.claim_id FROM sessions s WHERE s.id = $1) = $2)
    RETURNING id
)
UPDATE jobs j
SET status = 'claimed', attempt_id = md5($7::text || j.id)::uuid, session_id = $1, claim_id = $2, claimed_by = $9,
    claimed_at = paddock_now(), unlisted = 0, turn_count = j.turn_count + 1,
    started_at = coalesce(j.started_at, paddock_now()),
    wait_seconds = j.wait_seconds + date_part('epoch', paddock_now() - j.due_at)
WHERE j.id = ANY (ARRAY(SELECT id FROM taken WHERE EXISTS (SELECT FROM marked)))
RETURNING j.id, j.attempt_id, j.kind, j.lane, j.due_at, j.claimed_at, j.payload, j.owner, j.turn_count,
          date_part('epoch', paddock_now() - j.started_at) AS age_seconds, j.unsaved_seconds, j.failure_count, j.lost_count,
          j.tags, j.saved, j.role, j.waiting_on, j.cleanup_of, j.parent_id, j.traceparent;

-- name: claim_only (relaxed)
-- For `worker --once`: the given jobs, their cleanups and their follow-ups, and nothing else. A repeated claim_id, and two
-- at once: as in claim_jobs.
WITH related AS (
    SELECT id FROM jobs WHERE id = ANY ($3::uuid[])
    UNION SELECT id FROM jobs WHERE cleanup_of = ANY ($3::uuid[])
    UNION SELECT id FROM jobs WHERE parent_id = ANY ($3::uuid[])
), taken AS MATERIALIZED (
    SELECT j.id FROM jobs j JOIN kinds k ON k.name = j.kind
    WHERE j.id = ANY (ARRAY(SELECT id FROM related)) AND j.attempt_id IS NULL AND j.due_at <= paddock_now()
      AND j.kind = ANY ($4::text[]) AND (j.lane = 0 OR NOT k.paused)
      AND EXISTS (SELECT FROM sessions s WHERE s.id = $1 AND s.expires_at > paddock_now())
      AND NOT EXISTS (SELECT FROM jobs m WHERE m.session_id = $1 AND m.claim_id = $2 AND m.attempt_id IS NOT NULL)
    ORDER BY j.lane, j.due_at LIMIT $5 FOR UPDATE OF j SKIP LOCKED
), marked AS (
    UPDATE sessions SET claim_id = $2
    WHERE id = $1 AND EXISTS (SELECT FROM taken)
      AND (claim_id IS DISTINCT FROM $2 OR (SELECT s.claim_id FROM sessions s WHERE s.id = $1) = $2)
    RETURNING id
)
UPDATE jobs j
SET status = 'claimed', attempt_id = md5($7::text || j.id)::uuid, session_id = $1, claim_id = $2, claimed_by = $6,
    claimed_at = paddock_now(), unlisted = 0, turn_count = j.turn_count + 1,
    started_at = coalesce(j.started_at, paddock_now()),
    wait_seconds = j.wait_seconds + date_part('epoch', paddock_now() - j.due_at)
-- Locked above, so unclaimed; to say so again here would tempt the planner to walk all of jobs_due.
WHERE j.id = ANY (ARRAY(SELECT id FROM taken WHERE EXISTS (SELECT FROM marked)))
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
