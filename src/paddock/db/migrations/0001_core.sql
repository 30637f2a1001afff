-- The core: live jobs in one small hot table, ended ones in history partitions.
-- A job is live exactly while its row is in `jobs`; ending it moves the row, so a unique index over live rows
-- is all a lock needs, and nothing is ever archived by a second write.

-- The only clock of the system. Tests replace this function to set the time.
CREATE FUNCTION paddock_now() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN now();

-- Time-ordered ids (the layout of UUID version 7): newest first is `ORDER BY id DESC` and needs no index of its own.
-- `n` keeps the order of rows that one statement makes in the same millisecond.
CREATE FUNCTION paddock_id(at timestamptz, n bigint DEFAULT 0, random uuid DEFAULT gen_random_uuid()) RETURNS uuid
    LANGUAGE sql VOLATILE PARALLEL SAFE
    RETURN (lpad(to_hex((date_part('epoch', at) * 1000)::bigint), 12, '0')
            || '7' || lpad(to_hex(n & 4095), 3, '0')
            || translate(substr(random::text, 20, 1), '0123456789abcdef', '89ab89ab89ab89ab')
            || substr(random::text, 21))::uuid;

-- The least id a job created at that time could have: turns a time bound into an index bound.
CREATE FUNCTION paddock_least_id(at timestamptz) RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (lpad(to_hex(greatest(0, (date_part('epoch', at) * 1000)::bigint)), 12, '0') || '00000000000000000000')::uuid;

CREATE TABLE service (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    installation uuid NOT NULL DEFAULT gen_random_uuid(),
    drained     boolean NOT NULL DEFAULT false,
    drain_reason text,
    -- When a replica last served, and since when it does so without a gap: leases run only meanwhile.
    served_at   timestamptz NOT NULL DEFAULT paddock_now(),
    resumed_at  timestamptz NOT NULL DEFAULT paddock_now()
) WITH (fillfactor = 20);
INSERT INTO service DEFAULT VALUES;

-- True when new work is refused. The shared lock makes `drain on` wait for submissions under way, and plpgsql takes
-- a new snapshot after the lock is held: once the drain call has returned no submission can still slip in.
CREATE FUNCTION paddock_draining() RETURNS boolean
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7233, 1);
    RETURN (SELECT drained FROM service);
END $$;

-- What the code declares about each kind, for the statements that need it, and whether it is paused.
CREATE TABLE kinds (
    name            text PRIMARY KEY,
    backoff_first   interval NOT NULL,
    backoff_cap     interval NOT NULL,
    failure_limit   int NOT NULL,
    cluster_limit   int NOT NULL,
    loss_limit      int NOT NULL,
    turn_timeout    interval,
    total_timeout   interval,
    stall_timeout   interval,
    patience        interval NOT NULL,
    may_repeat      boolean NOT NULL,
    serial          boolean NOT NULL,
    internal        boolean NOT NULL,
    housekeeping    boolean NOT NULL,
    has_cleanup     boolean NOT NULL,
    has_end_hook    boolean NOT NULL,
    submit          text[],
    paused          boolean NOT NULL DEFAULT false,
    paused_at       timestamptz,
    paused_by       text,
    pause_reason    text
);

CREATE TABLE sessions (
    id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    worker_id   text NOT NULL,
    version     text NOT NULL,
    kinds       text[] NOT NULL,
    slots       int NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT paddock_now(),
    -- Renewed by every beat; in no index, so that a beat is a HOT update of one row.
    beat_at     timestamptz NOT NULL DEFAULT paddock_now(),
    expires_at  timestamptz NOT NULL,
    dying       boolean NOT NULL DEFAULT false,
    quiet       boolean NOT NULL DEFAULT false
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Which versions of workers, and of control planes, were at work from a time on: a row for each change of the set, so
-- that a version which comes back is a change too. Sessions are forgotten an hour after their end.
CREATE TABLE versions_at_work (
    role        text NOT NULL,
    at          timestamptz NOT NULL,
    versions    text[] NOT NULL,
    PRIMARY KEY (role, at)
);

CREATE TABLE jobs (
    -- What every claim, beat and finish looks at comes first, at offsets that are the same in each row.
    id              uuid PRIMARY KEY,
    due_at          timestamptz NOT NULL,
    created_at      timestamptz NOT NULL,
    run_seconds     float8 NOT NULL DEFAULT 0,
    wait_seconds    float8 NOT NULL DEFAULT 0,
    -- Claimed time since the last accepted save, of the turns before this one.
    unsaved_seconds float8 NOT NULL DEFAULT 0,
    turn_count      int NOT NULL DEFAULT 0,
    failure_count   int NOT NULL DEFAULT 0,
    cluster_count   int NOT NULL DEFAULT 0,
    lost_count      int NOT NULL DEFAULT 0,
    -- Those of the failures that nobody classified.
    unclassified_count smallint NOT NULL DEFAULT 0,
    unlisted        smallint NOT NULL DEFAULT 0,
    priority        smallint NOT NULL CHECK (priority BETWEEN 1 AND 4),
    -- Where a claim looks for it: 0 for what something outside waits for (submitted jobs and cleanups, never paused,
    -- with slots of their own), else its priority.
    lane            smallint NOT NULL GENERATED ALWAYS AS
                    (CASE WHEN waiting_on IS NOT NULL OR cleanup_of IS NOT NULL THEN 0 ELSE priority END) STORED,
    serial          boolean NOT NULL DEFAULT false,
    attempt_id      uuid,
    session_id      uuid,
    claim_id        uuid,
    claimed_at      timestamptz,
    started_at      timestamptz,
    kind            text NOT NULL,
    status          text NOT NULL CHECK (status IN ('pending', 'claimed', 'submitted')),
    owner           text NOT NULL,
    role            text,
    claimed_by      text,
    ended_by        uuid,
    -- How that attempt ended its turn: again, transient, release. Tells a repeated write from a late one.
    ended_as        text,
    waiting_on      text,
    lock_key        text,
    group_id        uuid,
    retry_of        uuid,
    cleanup_of      uuid,
    parent_id       uuid,
    -- A cleanup waits until this attempt has stopped or its session has died.
    after_attempt   uuid,
    schedule        text,
    saved_at        timestamptz,
    submitted_at    timestamptz,
    error_code      text,
    error_message   text,
    traceparent     text,
    tags            text[] NOT NULL DEFAULT '{}',
    payload         jsonb NOT NULL,
    saved           jsonb,
    report          jsonb,
    errors          jsonb,
    CONSTRAINT attempt_exactly_while_claimed CHECK ((attempt_id IS NOT NULL) = (status = 'claimed')),
    CONSTRAINT submitted_waits_on_something CHECK (status <> 'submitted' OR waiting_on IS NOT NULL)
)
-- Dead rows cost a claim nothing (its cursor passes them), so vacuum comes when there are many, not all the time:
-- with a threshold of 1,000 it took more CPU than the jobs themselves.
WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.2, autovacuum_vacuum_threshold = 20000,
      autovacuum_analyze_scale_factor = 0.5, autovacuum_analyze_threshold = 20000);

CREATE INDEX jobs_due ON jobs (kind, lane, due_at, id) WHERE attempt_id IS NULL;
CREATE INDEX jobs_held ON jobs (session_id, claim_id) WHERE attempt_id IS NOT NULL;
-- An owner's list walks along their own jobs: how far it got, and how long that took, tells nothing of others.
CREATE INDEX jobs_owner ON jobs (owner, id);
CREATE UNIQUE INDEX jobs_lock ON jobs (lock_key) WHERE lock_key IS NOT NULL;
CREATE UNIQUE INDEX jobs_serial ON jobs (kind) WHERE serial AND attempt_id IS NOT NULL;
CREATE INDEX jobs_group ON jobs (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX jobs_retry_of ON jobs (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX jobs_parent ON jobs (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX jobs_cleanup_of ON jobs (cleanup_of) WHERE cleanup_of IS NOT NULL;
CREATE INDEX jobs_after_attempt ON jobs (after_attempt) WHERE after_attempt IS NOT NULL;
CREATE INDEX jobs_schedule ON jobs (schedule) WHERE schedule IS NOT NULL;

-- For the total time-out: only what ran before and waits again.
CREATE INDEX jobs_waiting ON jobs (kind, started_at) WHERE attempt_id IS NULL AND started_at IS NOT NULL;

CREATE TABLE job_history (
    id              uuid NOT NULL,
    completed_at    timestamptz NOT NULL,
    created_at      timestamptz NOT NULL,
    run_seconds     float8 NOT NULL,
    wait_seconds    float8 NOT NULL,
    turn_count      int NOT NULL,
    failure_count   int NOT NULL,
    cluster_count   int NOT NULL,
    lost_count      int NOT NULL,
    priority        smallint NOT NULL,
    kind            text NOT NULL,
    status          text NOT NULL CHECK (status IN ('completed', 'failed', 'cancelled')),
    owner           text NOT NULL,
    claimed_by      text,
    error_code      text,
    error_message   text,
    group_id        uuid,
    cleanup_of      uuid,
    schedule        text,
    tags            text[] NOT NULL,
    role            text,
    ended_by        uuid,
    session_id      uuid,
    claimed_at      timestamptz,
    started_at      timestamptz,
    submitted_at    timestamptz,
    waiting_on      text,
    lock_key        text,
    retry_of        uuid,
    parent_id       uuid,
    traceparent     text,
    payload         jsonb NOT NULL,
    saved           jsonb,
    report          jsonb,
    result          jsonb,
    errors          jsonb,
    PRIMARY KEY (id, completed_at)
) PARTITION BY RANGE (completed_at);

CREATE INDEX job_history_kind ON job_history (kind, id);
CREATE INDEX job_history_owner ON job_history (owner, id);
CREATE INDEX job_history_error ON job_history (error_code, id) WHERE error_code IS NOT NULL;
CREATE INDEX job_history_unhappy ON job_history (status, id) WHERE status <> 'completed';
CREATE INDEX job_history_unhappy_kind ON job_history (kind, id) WHERE status <> 'completed';
CREATE INDEX job_history_unhappy_owner ON job_history (owner, id) WHERE status <> 'completed';
-- autosummarize: without it every page written since the last vacuum counts as a hit, and a reading of the last two
-- minutes reads all of them.
CREATE INDEX job_history_ended ON job_history USING brin (completed_at) WITH (pages_per_range = 16, autosummarize = on);
CREATE INDEX job_history_group ON job_history (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX job_history_retry_of ON job_history (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX job_history_cleanup_of ON job_history (cleanup_of) WHERE cleanup_of IS NOT NULL;
CREATE INDEX job_history_parent ON job_history (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX job_history_schedule ON job_history (schedule, id) WHERE schedule IS NOT NULL;

-- Catches rows for which upkeep has made no partition yet: a finish must never fail for want of one.
CREATE TABLE job_history_default PARTITION OF job_history DEFAULT
    WITH (autovacuum_analyze_scale_factor = 1, autovacuum_analyze_threshold = 50000,
          autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_insert_threshold = 50000);

-- What a row cannot tell: retries with their error, releases, rescues, cancels, stale writes.
CREATE TABLE job_timeline (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id      uuid NOT NULL,
    at          timestamptz NOT NULL DEFAULT paddock_now(),
    event       text NOT NULL,
    from_status text,
    to_status   text,
    attempt_id  uuid,
    worker      text,
    actor       text,
    reason      text,
    claimed_at  timestamptz,
    error       jsonb
);
CREATE INDEX job_timeline_job ON job_timeline (job_id, id);
CREATE INDEX job_timeline_at ON job_timeline USING brin (at);
-- What died with a worker: rare, and asked for by its name.
CREATE INDEX job_timeline_lost ON job_timeline (worker, id) WHERE event IN ('rescued', 'worker_lost');

CREATE TABLE groups (
    id          uuid PRIMARY KEY,
    kind        text NOT NULL,
    owner       text NOT NULL,
    total       int NOT NULL DEFAULT 0,
    open        int NOT NULL DEFAULT 0,
    failed      int NOT NULL DEFAULT 0,
    cancelled   int NOT NULL DEFAULT 0,
    sealed      boolean NOT NULL DEFAULT false,
    data        jsonb NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT paddock_now(),
    ended_at    timestamptz,
    -- Set by a hook that lets nothing reopen it: retrying one of its jobs is refused.
    final       boolean NOT NULL DEFAULT false,
    -- True while the kind's hook for this end has still to succeed; a pass repeats it.
    hook_due    boolean NOT NULL DEFAULT false,
    CHECK (open >= 0 AND failed >= 0 AND cancelled >= 0)
);
CREATE INDEX groups_hook_due ON groups (id) WHERE hook_due;
-- Lists: the open ones newest first, the ended ones by their end; of everybody, or of one owner.
CREATE INDEX groups_open ON groups (id) WHERE ended_at IS NULL;
CREATE INDEX groups_open_owner ON groups (owner, id) WHERE ended_at IS NULL;
CREATE INDEX groups_ended ON groups (ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX groups_ended_owner ON groups (owner, ended_at, id) WHERE ended_at IS NOT NULL;

CREATE TABLE idempotency_keys (
    owner       text NOT NULL,
    route       text NOT NULL,
    key         text NOT NULL,
    body_hash   bytea NOT NULL,
    job_ids     uuid[] NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT paddock_now(),
    PRIMARY KEY (owner, route, key)
);
CREATE INDEX idempotency_keys_created ON idempotency_keys (created_at);

CREATE TABLE events (
    id          uuid PRIMARY KEY,
    type        text NOT NULL,
    subject     text NOT NULL,
    version     bigint NOT NULL,
    owner       text NOT NULL,
    data        jsonb NOT NULL,
    at          timestamptz NOT NULL DEFAULT paddock_now()
);
CREATE INDEX events_owner ON events (owner, id);
CREATE INDEX events_subject ON events (subject, id);
CREATE INDEX events_type ON events (type, id);
-- In a collation of its own, as audit_log_actor_action and for the same reason.
CREATE INDEX events_owner_type ON events (owner COLLATE "C", type, id);

CREATE TABLE webhooks (
    id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    owner       text NOT NULL,
    -- True: told of everybody's events; else of its owner's only.
    all_owners  boolean NOT NULL DEFAULT false,
    url         text NOT NULL,
    types       text[] NOT NULL,
    secret      text NOT NULL,
    active      boolean NOT NULL DEFAULT true,
    created_at  timestamptz NOT NULL DEFAULT paddock_now()
);

CREATE TABLE deliveries (
    event_id    uuid NOT NULL,
    webhook_id  uuid NOT NULL,
    job_id      uuid NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT paddock_now(),
    PRIMARY KEY (event_id, job_id)
);
CREATE INDEX deliveries_job ON deliveries (job_id);
CREATE INDEX deliveries_webhook ON deliveries (webhook_id, job_id);

CREATE TABLE schedules (
    name        text PRIMARY KEY,
    kind        text NOT NULL,
    payload     jsonb NOT NULL DEFAULT '{}',
    every       interval,
    cron        text,
    timezone    text NOT NULL DEFAULT 'UTC',
    priority    smallint NOT NULL DEFAULT 3,
    tags        text[] NOT NULL DEFAULT '{}',
    owner       text NOT NULL,
    internal    boolean NOT NULL DEFAULT false,
    enabled     boolean NOT NULL DEFAULT true,
    next_at     timestamptz,
    last_at     timestamptz,
    last_job_id uuid,
    skipped     bigint NOT NULL DEFAULT 0,
    last_problem text,
    created_at  timestamptz NOT NULL DEFAULT paddock_now(),
    CHECK ((every IS NULL) <> (cron IS NULL)),
    CHECK (every IS NULL OR every >= interval '1 second')
);
CREATE INDEX schedules_due ON schedules (next_at) WHERE enabled;

CREATE TABLE job_logs (
    job_id      uuid NOT NULL,
    attempt_id  uuid NOT NULL,
    seq         bigint NOT NULL,
    at          timestamptz NOT NULL DEFAULT paddock_now(),
    lines       text NOT NULL,
    dropped_bytes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, at, attempt_id, seq)
) PARTITION BY RANGE (at);
CREATE INDEX job_logs_at ON job_logs USING brin (at) WITH (pages_per_range = 16, autosummarize = on);
CREATE TABLE job_logs_default PARTITION OF job_logs DEFAULT
    WITH (autovacuum_analyze_scale_factor = 1, autovacuum_analyze_threshold = 50000,
          autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_insert_threshold = 50000);

-- Figures: charts and counts read these and never the jobs. `width` is the bucket's length in seconds.
CREATE TABLE job_stats (
    width       int NOT NULL,
    bucket      timestamptz NOT NULL,
    kind        text NOT NULL,
    status      text NOT NULL,
    n           bigint NOT NULL,
    run_seconds float8 NOT NULL,
    wait_seconds float8 NOT NULL,
    run_histogram bigint[] NOT NULL,
    wait_histogram bigint[] NOT NULL,
    PRIMARY KEY (width, bucket, kind, status)
);
CREATE TABLE error_stats (
    width       int NOT NULL,
    bucket      timestamptz NOT NULL,
    kind        text NOT NULL,
    code        text NOT NULL,
    n           bigint NOT NULL,
    first_job   uuid NOT NULL,
    last_job    uuid NOT NULL,
    -- When the first and the last of them failed: a wide bucket begins long before.
    first_at    timestamptz NOT NULL,
    last_at     timestamptz NOT NULL,
    PRIMARY KEY (width, bucket, kind, code)
);
CREATE TABLE queue_stats (
    width       int NOT NULL,
    bucket      timestamptz NOT NULL,
    kind        text NOT NULL,
    pending     bigint NOT NULL,
    claimed     bigint NOT NULL,
    submitted   bigint NOT NULL,
    oldest_due_seconds float8 NOT NULL,
    PRIMARY KEY (width, bucket, kind)
);

-- How far history has been counted: after an outage the figures go on from here.
CREATE TABLE figures_progress (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    counted_to  timestamptz NOT NULL
);

CREATE TABLE audit_log (
    id          uuid PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT paddock_now(),
    actor       text NOT NULL,
    action      text NOT NULL,
    subject     text NOT NULL,
    reason      text,
    details     jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_log_subject ON audit_log (subject, id);
CREATE INDEX audit_log_action ON audit_log (action, id);
CREATE INDEX audit_log_actor ON audit_log (actor, id);
-- For one who does much, and seldom this. In a collation of its own: else the planner would walk along audit_log_actor,
-- whose order begins like this one's, and sort all that the actor did.
CREATE INDEX audit_log_actor_action ON audit_log (actor COLLATE "C", action, id);

CREATE TABLE settings (
    name        text PRIMARY KEY,
    value       jsonb NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT paddock_now(),
    updated_by  text NOT NULL
);

CREATE TABLE tokens (
    id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name        text NOT NULL,
    owner       text NOT NULL,
    role        text NOT NULL CHECK (role IN ('worker', 'analyst', 'ops', 'admin')),
    secret_hash bytea NOT NULL UNIQUE,
    -- Worker tokens: the kinds they may claim; null: all but internal ones.
    kinds       text[],
    engine_roles text[] NOT NULL DEFAULT '{}',
    engines     text[] NOT NULL DEFAULT '{}',
    destinations text[] NOT NULL DEFAULT '{}',
    databases   text[] NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT paddock_now(),
    created_by  text NOT NULL,
    expires_at  timestamptz,
    last_used_at timestamptz,
    revoked_at  timestamptz
);

CREATE TABLE web_sessions (
    id_hash     bytea PRIMARY KEY,
    token_id    uuid NOT NULL REFERENCES tokens ON DELETE CASCADE,
    csrf        text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT paddock_now(),
    expires_at  timestamptz NOT NULL
);

CREATE TABLE sign_in_links (
    code_hash   bytea PRIMARY KEY,
    token_id    uuid NOT NULL REFERENCES tokens ON DELETE CASCADE,
    expires_at  timestamptz NOT NULL,
    -- A used one is kept for a day: whoever comes second is told that, and when the first came.
    used_at     timestamptz
);

-- For people who look with SQL, and for scalers: stable, read only.
CREATE VIEW job_queue AS
SELECT j.id, j.kind, j.status, j.priority, j.owner, j.claimed_by, j.claimed_at,
       CASE WHEN j.status = 'claimed' THEN s.expires_at ELSE j.due_at END AS visible_at,
       greatest(j.created_at, j.claimed_at, j.saved_at) AS updated_at,
       j.turn_count, j.failure_count + j.cluster_count + j.lost_count + 1 AS attempt_count, j.error_code, j.error_message
FROM jobs j LEFT JOIN sessions s ON s.id = j.session_id AND j.attempt_id IS NOT NULL;

CREATE FUNCTION paddock_backlog(kinds text[]) RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
    RETURN (SELECT count(*) FROM jobs j
            WHERE j.kind = ANY (paddock_backlog.kinds) AND (j.attempt_id IS NOT NULL OR j.waiting_on IS NOT NULL OR j.due_at <= paddock_now()));

ANALYZE;
