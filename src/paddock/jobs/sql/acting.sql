-- name: run_now (durable)
UPDATE jobs SET due_at = paddock_now()
WHERE id = $1 AND attempt_id IS NULL AND after_attempt IS NULL AND due_at > paddock_now()
RETURNING id, kind, lane, due_at, 0::float8 AS due_in;

-- name: ended_job (durable)
-- Locked, so that two retries of the same job come one after the other.
SELECT * FROM job_history WHERE id = $1 FOR UPDATE;

-- name: retried_by (durable)
SELECT id FROM jobs WHERE retry_of = $1 UNION ALL SELECT id FROM job_history WHERE retry_of = $1 LIMIT 1;

-- name: is_live (durable)
SELECT true FROM jobs WHERE id = $1;

-- name: note_timeline (durable)
INSERT INTO job_timeline (job_id, event, from_status, to_status, actor, reason) VALUES ($1, $2, $3, $4, $5, $6);

-- name: audit (durable)
INSERT INTO audit_log (id, actor, action, subject, reason, details)
VALUES (paddock_id(paddock_now()), $1, $2, $3, $4, $5);

-- name: pause_kind (durable)
UPDATE kinds SET paused = $2, paused_at = CASE WHEN $2 THEN paddock_now() END, paused_by = CASE WHEN $2 THEN $3::text END,
    pause_reason = CASE WHEN $2 THEN $4::text END
WHERE name = $1 RETURNING name;

-- name: lock_submissions (durable)
SELECT pg_advisory_xact_lock(7233, 1);

-- name: set_drain (durable)
UPDATE service SET drained = $1, drain_reason = CASE WHEN $1 THEN $2::text END;

-- name: declare_kinds (durable)
INSERT INTO kinds (name, backoff_first, backoff_cap, failure_limit, cluster_limit, loss_limit, turn_timeout,
    total_timeout, stall_timeout, patience, may_repeat, serial, internal, housekeeping, has_cleanup, has_end_hook, submit)
SELECT i.name, i.backoff_first, i.backoff_cap, i.failure_limit, i.cluster_limit, i.loss_limit, i.turn_timeout,
    i.total_timeout, i.stall_timeout, i.patience, i.may_repeat, i.serial, i.internal, i.housekeeping, i.has_cleanup,
    i.has_end_hook, CASE WHEN i.submit IS NULL THEN NULL ELSE string_to_array(i.submit, ',') END
FROM unnest($1::text[], $2::interval[], $3::interval[], $4::int[], $5::int[], $6::int[], $7::interval[], $8::interval[],
    $9::interval[], $10::interval[], $11::boolean[], $12::boolean[], $13::boolean[], $14::boolean[], $15::boolean[],
    $16::boolean[], $17::text[])
    AS i(name, backoff_first, backoff_cap, failure_limit, cluster_limit, loss_limit, turn_timeout, total_timeout,
         stall_timeout, patience, may_repeat, serial, internal, housekeeping, has_cleanup, has_end_hook, submit)
ORDER BY i.name
ON CONFLICT (name) DO UPDATE SET
    backoff_first = excluded.backoff_first, backoff_cap = excluded.backoff_cap, failure_limit = excluded.failure_limit,
    cluster_limit = excluded.cluster_limit, loss_limit = excluded.loss_limit, turn_timeout = excluded.turn_timeout,
    total_timeout = excluded.total_timeout, stall_timeout = excluded.stall_timeout, patience = excluded.patience,
    may_repeat = excluded.may_repeat, serial = excluded.serial, internal = excluded.internal,
    housekeeping = excluded.housekeeping, has_cleanup = excluded.has_cleanup, has_end_hook = excluded.has_end_hook,
    submit = excluded.submit;
