-- name: save_jobs (durable)
-- Saved progress forgives: failures, losses and the stall count since the last of it. What is saved without any (a
-- draft's name, at the start of each turn) changes nothing else: a job that always dies there must come to an end.
UPDATE jobs j
SET saved = i.saved,
    saved_at = CASE WHEN i.progress THEN paddock_now() ELSE j.saved_at END,
    unsaved_seconds = CASE WHEN i.progress THEN 0 ELSE j.unsaved_seconds END,
    failure_count = CASE WHEN i.progress THEN 0 ELSE j.failure_count END,
    unclassified_count = CASE WHEN i.progress THEN 0 ELSE j.unclassified_count END,
    lost_count = CASE WHEN i.progress THEN 0 ELSE j.lost_count END
FROM unnest($1::uuid[], $2::uuid[], $3::jsonb[], $4::boolean[]) AS i(id, attempt_id, saved, progress)
WHERE j.id = i.id AND j.attempt_id = i.attempt_id
RETURNING j.id, j.attempt_id;

-- name: report_jobs (relaxed)
UPDATE jobs j SET report = i.report
FROM unnest($1::uuid[], $2::uuid[], $3::jsonb[]) AS i(id, attempt_id, report)
WHERE j.id = i.id AND j.attempt_id = i.attempt_id
RETURNING j.id;

-- name: yield_jobs (durable)
-- Ends a turn, not the job, and spends nothing.
UPDATE jobs j
SET status = CASE WHEN i.waiting_on IS NULL THEN 'pending' ELSE 'submitted' END,
    waiting_on = i.waiting_on,
    submitted_at = CASE WHEN i.waiting_on IS NULL THEN j.submitted_at ELSE coalesce(j.submitted_at, paddock_now()) END,
    attempt_id = NULL, ended_by = i.attempt_id, ended_as = 'again',
    due_at = paddock_now() + i.delay,
    saved = coalesce(i.saved, j.saved),
    saved_at = CASE WHEN i.progress THEN paddock_now() ELSE j.saved_at END,
    unsaved_seconds = CASE WHEN i.progress THEN 0
        ELSE j.unsaved_seconds + date_part('epoch', paddock_now() - greatest(j.claimed_at, j.saved_at)) END,
    failure_count = CASE WHEN i.progress THEN 0 ELSE j.failure_count END,
    unclassified_count = CASE WHEN i.progress THEN 0 ELSE j.unclassified_count END,
    lost_count = CASE WHEN i.progress THEN 0 ELSE j.lost_count END,
    run_seconds = j.run_seconds + date_part('epoch', paddock_now() - j.claimed_at)
FROM unnest($1::uuid[], $2::uuid[], $3::interval[], $4::text[], $5::jsonb[], $6::boolean[])
     AS i(id, attempt_id, delay, waiting_on, saved, progress)
WHERE j.id = i.id AND j.attempt_id = i.attempt_id
RETURNING j.id, i.attempt_id, j.kind, j.lane, j.due_at, date_part('epoch', j.due_at - paddock_now()) AS due_in;

-- name: retry_jobs (durable)
-- Takes the failures that are still forgiven; the caller ends the others with end_jobs.
-- A job whose work goes on outside stays `submitted`.
-- Without $7 somebody else reports the failure (a time-out the worker did not keep): the attempt did not end its turn
-- itself, and what it writes later is late and no repetition.
WITH back AS (
    UPDATE jobs j
    SET status = CASE WHEN j.waiting_on IS NULL THEN 'pending' ELSE 'submitted' END,
        attempt_id = NULL, ended_by = CASE WHEN $7::boolean THEN i.attempt_id ELSE j.ended_by END,
        ended_as = CASE WHEN $7::boolean THEN 'transient' ELSE j.ended_as END,
        due_at = paddock_now() + coalesce(i.delay,
            least(k.backoff_cap, k.backoff_first * power(2, least(20, CASE i.budget WHEN 'work' THEN j.failure_count ELSE j.cluster_count END)))
            * (0.9 + 0.2 * random())),
        failure_count = j.failure_count + (i.budget = 'work')::int,
        unclassified_count = j.unclassified_count + (i.budget = 'work' AND i.unclassified)::int,
        cluster_count = j.cluster_count + (i.budget = 'cluster')::int,
        error_code = i.error->>'code', error_message = i.error->>'message',
        errors = CASE WHEN jsonb_array_length(j.errors) >= 10 THEN j.errors - 0 ELSE coalesce(j.errors, '[]') END
                 || (i.error || jsonb_build_object('attempt_id', i.attempt_id, 'at', paddock_now(), 'worker', j.claimed_by)),
        -- A try after a stall has its whole time to save something in.
        unsaved_seconds = CASE WHEN i.error->>'code' = 'stalled' THEN 0
            ELSE j.unsaved_seconds + date_part('epoch', paddock_now() - greatest(j.claimed_at, j.saved_at)) END,
        run_seconds = j.run_seconds + date_part('epoch', paddock_now() - j.claimed_at)
    FROM unnest($1::uuid[], $2::uuid[], $3::interval[], $4::text[], $5::boolean[], $6::jsonb[])
         AS i(id, attempt_id, delay, budget, unclassified, error), kinds k
    WHERE j.id = i.id AND j.attempt_id = i.attempt_id AND k.name = j.kind
      AND CASE i.budget WHEN 'work'
          THEN j.failure_count < k.failure_limit AND (NOT i.unclassified OR j.unclassified_count < 3)
          ELSE j.cluster_count < k.cluster_limit END
    RETURNING j.id, j.kind, j.lane, j.due_at, j.status, j.claimed_by, j.claimed_at, i.attempt_id, i.error
), noted AS (
    INSERT INTO job_timeline (job_id, event, from_status, to_status, attempt_id, worker, reason, claimed_at, error)
    SELECT id, 'retry', 'claimed', status, attempt_id, claimed_by, error->>'code', claimed_at, error - 'traceback' FROM back
)
SELECT id, attempt_id, kind, lane, due_at, date_part('epoch', due_at - paddock_now()) AS due_in FROM back;

-- name: release_jobs (durable)
-- Gives jobs back uncounted: at shutdown, or when the claim's answer was lost.
WITH back AS (
    UPDATE jobs j
    SET status = CASE WHEN j.waiting_on IS NULL THEN 'pending' ELSE 'submitted' END,
        attempt_id = NULL, ended_by = i.attempt_id, ended_as = 'release', due_at = paddock_now() + i.delay,
        unsaved_seconds = j.unsaved_seconds + date_part('epoch', paddock_now() - greatest(j.claimed_at, j.saved_at)),
        run_seconds = j.run_seconds + date_part('epoch', paddock_now() - j.claimed_at)
    FROM unnest($1::uuid[], $2::uuid[], $3::interval[], $4::text[]) AS i(id, attempt_id, delay, reason)
    WHERE j.id = i.id AND j.attempt_id = i.attempt_id
    RETURNING j.id, j.kind, j.lane, j.due_at, j.status, j.claimed_by, j.claimed_at, i.attempt_id, i.reason
), noted AS (
    INSERT INTO job_timeline (job_id, event, from_status, to_status, attempt_id, worker, reason, claimed_at)
    SELECT id, 'released', 'claimed', status, attempt_id, claimed_by, reason, claimed_at FROM back
)
SELECT id, attempt_id, kind, lane, due_at, date_part('epoch', due_at - paddock_now()) AS due_in FROM back;

-- name: end_jobs (durable)
-- Every end of a job, whoever brings it about. Guard: (id, attempt_id), or with $8 any live row (a person's cancel)
-- but a cleanup: that would free the lock while the attempt it waits for is still at work.
-- The row leaves the hot table here and not later: an archiver would write it twice, and the lock is free
-- in this very statement or passes to the cleanup job.
-- The arrays come in id order and the plan is a nested loop over them: overlapping batches lock in the same order.
-- With $13 the attempt ends its own job and is remembered for it: its repeated write is then no late one.
-- With $9 the attempt may still be running (cancel, time-outs): its cleanup waits until it has stopped.
WITH item AS (
    SELECT i.id, i.attempt_id, coalesce(i.status, 'completed') AS end_status, i.result, i.end_code, i.end_message, i.error
    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::jsonb[], $5::text[], $6::text[], $7::jsonb[])
         AS i(id, attempt_id, status, result, end_code, end_message, error)
), gone AS (
    DELETE FROM jobs j USING item i
    WHERE j.id = i.id AND (j.attempt_id = i.attempt_id OR ($8::boolean AND j.cleanup_of IS NULL))
    RETURNING j.*, i.end_status, i.result, i.end_code, i.end_message, i.error, i.attempt_id AS writer
), moved AS (
    INSERT INTO job_history (
        id, kind, status, priority, owner, role, tags, payload, saved, report, result, ended_by, session_id, claimed_by,
        claimed_at, turn_count, failure_count, cluster_count, lost_count, error_code, error_message, errors, waiting_on,
        lock_key, group_id, retry_of, cleanup_of, parent_id, schedule, traceparent, created_at, started_at, submitted_at,
        about, completed_at, run_seconds, wait_seconds)
    SELECT id, kind, end_status, priority, owner, role, tags, payload, saved, report, result, CASE WHEN $13::boolean THEN writer END,
        session_id, claimed_by, claimed_at, turn_count, failure_count, cluster_count, lost_count, end_code, end_message,
        CASE WHEN error IS NULL THEN errors
             ELSE CASE WHEN jsonb_array_length(errors) >= 10 THEN errors - 0 ELSE coalesce(errors, '[]') END
                  || (error || jsonb_build_object('attempt_id', attempt_id, 'at', paddock_now(), 'worker', claimed_by)) END,
        waiting_on, lock_key, group_id, retry_of, cleanup_of, parent_id, schedule, traceparent, created_at, started_at,
        submitted_at, about, paddock_now(),
        run_seconds + CASE WHEN attempt_id IS NULL THEN 0 ELSE date_part('epoch', paddock_now() - claimed_at) END,
        wait_seconds
    FROM gone
), cleanup AS (
    INSERT INTO jobs (id, kind, status, priority, due_at, owner, role, tags, payload, saved, session_id, lock_key,
                      cleanup_of, after_attempt, serial, traceparent, about, created_at)
    SELECT paddock_id(paddock_now(), row_number() OVER ()), g.kind, 'pending', g.priority,
           CASE WHEN $9::boolean AND g.attempt_id IS NOT NULL THEN 'infinity' ELSE paddock_now() END,
           g.owner, g.role, g.tags, g.payload, g.saved, g.session_id, g.lock_key, g.id,
           CASE WHEN $9::boolean THEN g.attempt_id END, g.serial, g.traceparent, g.about, paddock_now()
    FROM gone g JOIN kinds k ON k.name = g.kind
    WHERE k.has_cleanup AND g.end_status <> 'completed' AND g.turn_count > 0 AND g.cleanup_of IS NULL
    RETURNING id, kind, lane, due_at, cleanup_of
), noted AS (
    INSERT INTO job_timeline (job_id, event, from_status, to_status, attempt_id, worker, actor, reason, claimed_at)
    SELECT id, $10::text, status, end_status, attempt_id, CASE WHEN attempt_id IS NOT NULL THEN claimed_by END, $11::text,
           coalesce($12::text, nullif(error->>'code', $10::text)), claimed_at
    FROM gone WHERE $10::text IS NOT NULL
)
SELECT g.id, g.kind, g.owner, g.group_id, g.schedule, g.end_status, g.end_code, g.attempt_id, g.session_id, g.cleanup_of,
       c.id AS cleanup_id, c.lane AS cleanup_lane, c.due_at AS cleanup_due_at, k.has_end_hook,
       k.housekeeping, (SELECT EXISTS (SELECT FROM webhooks WHERE active)) AS heard
FROM gone g JOIN kinds k ON k.name = g.kind LEFT JOIN cleanup c ON c.cleanup_of = g.id;

-- name: complete_jobs (durable)
-- The usual end: the attempt is done, and nothing but the move to history belongs to it. What has a group, a kind with an
-- end hook, or somebody who listens is left alone for end_jobs, which does all that in one transaction; this statement
-- is a transaction by itself. Guard and order of locks as there: (id, attempt_id), a nested loop over arrays in id order.
-- coalesce: a bare comparison lets the planner walk jobs_held instead, which it thinks is empty, once for each item.
WITH gone AS (
    DELETE FROM jobs j USING unnest($1::uuid[], $2::uuid[], $3::jsonb[]) AS i(id, attempt_id, result)
    WHERE j.id = i.id AND coalesce(j.attempt_id = i.attempt_id, false) AND j.group_id IS NULL
      AND j.kind <> ALL (ARRAY(SELECT name FROM kinds WHERE has_end_hook))
      AND NOT EXISTS (SELECT FROM webhooks WHERE active)
    RETURNING j.id, j.kind, j.priority, j.owner, j.role, j.tags, j.payload, j.saved, j.report, i.result, i.attempt_id,
              j.session_id, j.claimed_by, j.claimed_at, j.turn_count, j.failure_count, j.cluster_count, j.lost_count,
              j.errors, j.waiting_on, j.lock_key, j.retry_of, j.cleanup_of, j.parent_id, j.schedule, j.traceparent,
              j.created_at, j.started_at, j.submitted_at, j.about, j.run_seconds, j.wait_seconds
)
INSERT INTO job_history (
    id, kind, status, priority, owner, role, tags, payload, saved, report, result, ended_by, session_id, claimed_by,
    claimed_at, turn_count, failure_count, cluster_count, lost_count, errors, waiting_on, lock_key, retry_of, cleanup_of,
    parent_id, schedule, traceparent, created_at, started_at, submitted_at, about, completed_at, run_seconds, wait_seconds)
SELECT id, kind, 'completed', priority, owner, role, tags, payload, saved, report, result, attempt_id, session_id, claimed_by,
    claimed_at, turn_count, failure_count, cluster_count, lost_count, errors, waiting_on, lock_key, retry_of, cleanup_of,
    parent_id, schedule, traceparent, created_at, started_at, submitted_at, about, paddock_now(),
    run_seconds + date_part('epoch', paddock_now() - claimed_at), wait_seconds
FROM gone
RETURNING id, ended_by AS attempt_id, kind;

-- name: resolve_writes (durable)
-- What became of jobs whose fence turned a write away.
SELECT i.id, i.attempt_id, j.attempt_id AS holder, j.ended_by AS live_ended_by, j.ended_as, h.ended_by, h.status,
       coalesce(j.error_code, h.error_code) AS error_code, coalesce(j.error_message, h.error_message) AS error_message,
       j.id IS NOT NULL OR h.id IS NOT NULL AS known
FROM unnest($1::uuid[], $2::uuid[]) AS i(id, attempt_id)
LEFT JOIN LATERAL (SELECT id, attempt_id, ended_by, ended_as, error_code, error_message FROM jobs WHERE id = i.id) j ON true
LEFT JOIN LATERAL (SELECT id, ended_by, status, error_code, error_message FROM job_history WHERE id = i.id LIMIT 1) h ON true;

-- name: kinds_of_jobs (relaxed)
-- The kinds of these jobs, live or ended; null for those that run inside `serve`.
SELECT i.id, CASE WHEN NOT k.internal THEN k.name END AS kind
FROM unnest($1::uuid[]) AS i(id)
CROSS JOIN LATERAL (
    SELECT kind FROM jobs WHERE id = i.id
    UNION ALL SELECT kind FROM job_history WHERE id = i.id LIMIT 1) j
JOIN kinds k ON k.name = j.kind;

-- name: note_stale_writes (relaxed)
INSERT INTO job_timeline (job_id, event, attempt_id, reason)
SELECT i.id, 'stale_write', i.attempt_id, $3::text
FROM unnest($1::uuid[], $2::uuid[]) AS i(id, attempt_id)
WHERE (SELECT count(*) FROM (SELECT FROM job_timeline t WHERE t.job_id = i.id AND t.event = 'stale_write' LIMIT 20) s) < 20;

-- name: attempts_stopped (durable)
-- The attempts are no longer running: cleanups that waited for them may start. With $2 only those of these jobs: whoever
-- says it by naming both is believed of the jobs that it may write to.
UPDATE jobs SET due_at = paddock_now(), after_attempt = NULL
WHERE after_attempt = ANY ($1::uuid[]) AND coalesce(cleanup_of = ANY ($2::uuid[]), true)
RETURNING id, kind, lane, due_at, 0::float8 AS due_in;
