-- name: open_session (durable)
INSERT INTO sessions (worker_id, version, kinds, slots, expires_at)
VALUES ($1, $2, $3, $4, paddock_now() + $5::interval)
RETURNING id;

-- name: beat_sessions (relaxed)
-- One row per worker whatever it runs. What each session holds is read here and compared by the caller; each further
-- array would cost a running job more than all the rest of its beat, so details are asked for only when they differ.
-- The sessions come in order, so that two replicas lock the same ones the same way round.
WITH beat AS (
    UPDATE sessions s SET beat_at = paddock_now(), expires_at = paddock_now() + $3::interval, dying = i.dying
    FROM unnest($1::uuid[], $2::boolean[]) AS i(id, dying)
    WHERE s.id = i.id RETURNING s.id, s.quiet
)
SELECT beat.id, beat.quiet, held.attempts, held.overlooked,
       ARRAY(SELECT after_attempt FROM jobs WHERE after_attempt IS NOT NULL AND session_id = beat.id
             AND created_at < paddock_now() - $4::interval) AS awaited
FROM beat CROSS JOIN LATERAL (
    SELECT array_agg(attempt_id) AS attempts, bool_or(unlisted > 0) AS overlooked
    FROM jobs WHERE session_id = beat.id AND attempt_id IS NOT NULL) held;

-- name: held_jobs (relaxed)
SELECT id, attempt_id, claimed_at < paddock_now() - $2::interval AS settled, unlisted
FROM jobs WHERE session_id = $1 AND attempt_id IS NOT NULL;

-- name: session (relaxed)
SELECT worker_id, kinds, quiet, expires_at > paddock_now() AS live FROM sessions WHERE id = $1;

-- name: end_session (durable)
UPDATE sessions SET expires_at = paddock_now(), dying = true WHERE id = $1;

-- name: quiet_session (durable)
UPDATE sessions SET quiet = $2 WHERE id = $1 RETURNING worker_id;

-- name: note_unlisted (relaxed)
-- In a row: a beat that lists it again ($3) begins anew.
UPDATE jobs SET unlisted = CASE WHEN $3::boolean THEN 0 ELSE unlisted + 1 END
FROM unnest($1::uuid[], $2::uuid[]) AS i(id, attempt_id)
WHERE jobs.id = i.id AND jobs.attempt_id = i.attempt_id
RETURNING jobs.id, jobs.kind, jobs.attempt_id, jobs.unlisted;

-- name: stamp_service (relaxed)
-- Nothing expires while nobody could be heard: after a gap longer than $1 no lease and no time-out ends for $2.
-- No row: the database's clock was ahead and came back. (Replicas stamp by the start of their transactions, so that one may
-- see another's stamp a moment ahead of its own.)
UPDATE service
SET resumed_at = CASE WHEN served_at < paddock_now() - $1::interval THEN paddock_now() ELSE resumed_at END,
    served_at = paddock_now()
WHERE greatest(served_at, resumed_at) <= paddock_now() + interval '1 second'
RETURNING resumed_at + $2::interval <= paddock_now() AS has_served;

-- name: clock_ahead (durable)
-- By how much the clock was ahead when a replica last looked; null when it was not, or another replica was here before.
SELECT greatest(served_at, resumed_at) - paddock_now() FROM service
WHERE greatest(served_at, resumed_at) > paddock_now() + interval '1 second' FOR UPDATE;

-- name: pull_back_service (durable)
UPDATE service SET served_at = paddock_now(), resumed_at = paddock_now();

-- name: pull_back_sessions (durable)
-- A live worker beats again by the right time; a dead one would keep its jobs until the wrong one.
UPDATE sessions SET beat_at = paddock_now(), expires_at = paddock_now() + (expires_at - beat_at)
WHERE beat_at > paddock_now();

-- name: pull_back_jobs (durable)
-- What was written by the clock that was $1 ahead: due so much earlier, but not before now, and begun now. Cleanups that
-- wait for their attempt stay where they are. A job that had its turn before and waits for another tells by no other time
-- which clock its due time is of: it may come early, which is harmless.
UPDATE jobs
SET due_at = CASE WHEN attempt_id IS NULL AND due_at > paddock_now() AND due_at < 'infinity'
                  THEN greatest(due_at - $1::interval, paddock_now()) ELSE due_at END,
    created_at = least(created_at, paddock_now()),
    started_at = CASE WHEN started_at > paddock_now() THEN paddock_now() ELSE started_at END,
    claimed_at = CASE WHEN claimed_at > paddock_now() THEN paddock_now() ELSE claimed_at END,
    submitted_at = CASE WHEN submitted_at > paddock_now() THEN paddock_now() ELSE submitted_at END,
    saved_at = CASE WHEN saved_at > paddock_now() THEN paddock_now() ELSE saved_at END
WHERE greatest(created_at, started_at, claimed_at, submitted_at, saved_at) > paddock_now()
   OR attempt_id IS NULL AND turn_count > 0 AND due_at > paddock_now() AND due_at < 'infinity';

-- name: rescue_jobs (durable)
-- Gives back what dead sessions hold. Synchronous, and the token is null before anyone can claim: a take-over that is
-- lost in a crash would let the dead attempt's finish in again. SKIP LOCKED: a finish under way wins.
-- The patience of a kind is added to its session's end; a session that beats again in time keeps the job.
-- Found first and put in order then: in one step, before the first statistics, the planner walks all jobs by id.
WITH held AS MATERIALIZED (
    SELECT j.id, j.attempt_id
    FROM sessions s JOIN jobs j ON j.session_id = s.id AND j.attempt_id IS NOT NULL JOIN kinds k ON k.name = j.kind
    WHERE s.expires_at < paddock_now() AND s.expires_at + k.patience < paddock_now()
      AND (k.may_repeat OR j.cleanup_of IS NOT NULL) AND j.lost_count < k.loss_limit
), dead AS MATERIALIZED (
    SELECT j.id, j.attempt_id FROM jobs j
    WHERE j.id = ANY (ARRAY(SELECT id FROM held ORDER BY id LIMIT $1))
      AND j.attempt_id = ANY (ARRAY(SELECT attempt_id FROM held))
    ORDER BY j.id
    FOR UPDATE OF j SKIP LOCKED
), back AS (
    UPDATE jobs j
    SET status = CASE WHEN j.waiting_on IS NULL THEN 'pending' ELSE 'submitted' END,
        attempt_id = NULL, due_at = paddock_now(), lost_count = j.lost_count + 1,
        unsaved_seconds = j.unsaved_seconds + date_part('epoch', paddock_now() - greatest(j.claimed_at, j.saved_at)),
        run_seconds = j.run_seconds + date_part('epoch', paddock_now() - j.claimed_at)
    FROM dead d WHERE j.id = d.id AND j.attempt_id = d.attempt_id
    RETURNING j.id, j.kind, j.lane, j.due_at, j.status, j.claimed_by, j.claimed_at, d.attempt_id
), noted AS (
    INSERT INTO job_timeline (job_id, event, from_status, to_status, attempt_id, worker, reason, claimed_at)
    SELECT id, 'rescued', 'claimed', status, attempt_id, claimed_by, 'session_died', claimed_at FROM back
)
SELECT id, kind, lane, due_at, 0::float8 AS due_in FROM back;

-- name: lost_for_good (durable)
-- What dead sessions hold and may not be given back: repeated too often, or not to be repeated at all.
WITH held AS MATERIALIZED (
    SELECT j.id, j.attempt_id, j.claimed_by, j.lost_count
    FROM sessions s JOIN jobs j ON j.session_id = s.id AND j.attempt_id IS NOT NULL JOIN kinds k ON k.name = j.kind
    WHERE s.expires_at < paddock_now() AND s.expires_at + k.patience < paddock_now()
      AND NOT ((k.may_repeat OR j.cleanup_of IS NOT NULL) AND j.lost_count < k.loss_limit)
)
SELECT * FROM held ORDER BY id LIMIT $1;

-- name: cleanups_of_the_dead (durable)
UPDATE jobs j SET due_at = paddock_now(), after_attempt = NULL
WHERE j.after_attempt IS NOT NULL
  AND NOT EXISTS (SELECT FROM sessions s WHERE s.id = j.session_id AND s.expires_at >= paddock_now())
RETURNING j.id, j.kind, j.lane, j.due_at, 0::float8 AS due_in;

-- name: bury_sessions (durable)
-- A session whose row is gone although it holds jobs (deleted by hand, lost with a restored backup) is put back as
-- dead: what it held is a loss like any other, with its count, its patience and its limit.
-- Its kinds are those of what it holds: a token that is not for them may not speak for it.
INSERT INTO sessions (id, worker_id, version, kinds, slots, expires_at, dying)
SELECT i.id, i.worker_id, '', ARRAY(SELECT DISTINCT kind FROM jobs WHERE session_id = i.id AND attempt_id IS NOT NULL),
       0, paddock_now(), true
FROM unnest($1::uuid[], $2::text[]) AS i(id, worker_id)
ON CONFLICT (id) DO NOTHING;

-- name: overdue_attempts (relaxed)
-- The worker's supervisor keeps time-outs; this is for one that cannot. $1 is its head start.
-- A claimed job whose session row is gone is found here too. Found first and put in order then: what runs is little,
-- and a walk by id would read all that waits.
SELECT * FROM (SELECT j.id, j.kind, j.attempt_id, j.claimed_by, j.session_id,
       CASE WHEN s.id IS NULL THEN 'session_gone'
            WHEN j.started_at + k.total_timeout + $1::interval < paddock_now() THEN 'timed_out'
            WHEN j.claimed_at + k.turn_timeout + $1::interval < paddock_now() THEN 'turn_timeout'
            ELSE 'stalled' END AS reason
FROM jobs j JOIN kinds k ON k.name = j.kind LEFT JOIN sessions s ON s.id = j.session_id
WHERE j.attempt_id IS NOT NULL
  AND (s.id IS NULL
       OR j.started_at + k.total_timeout + $1::interval < paddock_now()
       OR j.claimed_at + k.turn_timeout + $1::interval < paddock_now()
       OR greatest(j.claimed_at, j.saved_at) + k.stall_timeout - j.unsaved_seconds * interval '1 second'
          + $1::interval < paddock_now())
OFFSET 0) overdue ORDER BY id LIMIT 500;

-- name: overdue_waiting (relaxed)
-- Jobs past their total time-out that nobody holds (in backoff, or submitted). The bound on started_at is one of
-- jobs_waiting: a million jobs that never ran are not walked.
SELECT j.id FROM kinds k CROSS JOIN LATERAL (
    SELECT id FROM jobs
    WHERE kind = k.name AND attempt_id IS NULL AND started_at IS NOT NULL AND cleanup_of IS NULL
      AND started_at < paddock_now() - k.total_timeout
    ORDER BY started_at LIMIT 500) j
WHERE k.total_timeout IS NOT NULL LIMIT 500;
