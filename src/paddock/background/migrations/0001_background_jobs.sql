-- Background jobs: one row for each, made by the code at its start and written in the transaction that ends a pass. History
-- holds 200 runs of a housekeeping kind, some minutes of the most frequent one: nothing can be derived from it.

CREATE TABLE background_jobs (
    name            text PRIMARY KEY,
    last_job_id     uuid,
    last_status     text CHECK (last_status IN ('success', 'failed', 'cancelled')),
    last_started_at timestamptz,
    last_ended_at   timestamptz,
    last_success_at timestamptz,
    duration_seconds double precision,
    error           jsonb,
    failures_in_a_row int NOT NULL DEFAULT 0,
    failing_since   timestamptz,
    -- What the last pass that came to its end counted.
    found           jsonb,
    -- Where the budget of the last pass ended; null: it came to its end.
    cursor          jsonb,
    -- What the next pass needs to know of this one: since when something is so. Bounded by the pass.
    notes           jsonb,
    -- Runs that the schedule left out because one still ran, as far as they were told.
    misfires        bigint NOT NULL DEFAULT 0,
    last_triggered_at timestamptz,
    last_trigger    jsonb
);

-- Which end of an instance was told beforehand, so that it is told once.
CREATE TABLE expiring_instances (
    instance_id uuid PRIMARY KEY,
    expires_at  timestamptz NOT NULL
);

-- Their work is that of `lifecycle` now. A run that is at work ends where it runs; those that wait are not missed.
DELETE FROM schedules WHERE internal AND name IN ('expire-exports', 'expire-dumps');
DELETE FROM jobs WHERE kind IN ('expire_exports', 'expire_dumps') AND attempt_id IS NULL;
DELETE FROM kinds k WHERE k.name IN ('expire_exports', 'expire_dumps')
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.kind = k.name);
