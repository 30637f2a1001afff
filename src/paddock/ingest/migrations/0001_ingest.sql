-- Ingest: runs of a source, their batches, and the files that were published. All that follows from a step is written in the
-- transaction that ends its job, with the run's row locked first, then the batch, then the group.

CREATE TABLE ingest_runs (
    id          uuid PRIMARY KEY DEFAULT paddock_id(paddock_now()),
    source      text NOT NULL,
    owner       text NOT NULL,
    status      text NOT NULL DEFAULT 'running'
        CHECK (status IN ('running', 'finishing', 'stopping', 'completed', 'failed', 'cancelled', 'deleting')),
    group_id    uuid NOT NULL,
    -- What the request said: from, batch_size, limit.
    request     jsonb NOT NULL,
    batch_size  int NOT NULL,
    record_limit bigint,
    -- Where the next fetch goes on; text, because it is kept to the letter. Null: at the beginning.
    session     text,
    next_batch  int NOT NULL DEFAULT 0,
    fetched     bigint NOT NULL DEFAULT 0,
    -- Of the batches that are fetched or hooked.
    waiting_bytes bigint NOT NULL DEFAULT 0,
    held_since  timestamptz,
    failed_batches int NOT NULL DEFAULT 0,
    max_failed_batches int NOT NULL,
    -- What a run that is stopping becomes.
    stop_as     text CHECK (stop_as IN ('failed', 'cancelled')),
    error       jsonb,
    created_at  timestamptz NOT NULL DEFAULT paddock_now(),
    ended_at    timestamptz,
    CHECK (status <> 'stopping' OR stop_as IS NOT NULL)
);
-- One live run of a source.
CREATE UNIQUE INDEX ingest_runs_live ON ingest_runs (source) WHERE status IN ('running', 'finishing', 'stopping');
CREATE INDEX ingest_runs_source ON ingest_runs (source, id);

CREATE TABLE ingest_batches (
    run_id      uuid NOT NULL REFERENCES ingest_runs ON DELETE CASCADE,
    n           int NOT NULL,
    status      text NOT NULL CHECK (status IN ('fetched', 'hooked', 'published', 'failed', 'cancelled', 'skipped')),
    records     bigint NOT NULL,
    duplicates  bigint NOT NULL DEFAULT 0,
    bytes       bigint NOT NULL,
    fetched_at  timestamptz NOT NULL,
    -- The session after this batch; only the last batch of a fetch has one.
    session     text,
    -- What each step wrote; a retry begins with the first again.
    manifest    text,
    sha256      text,
    hooked_manifest text,
    hooked_sha256   text,
    hooks       jsonb,
    passed      bigint,
    rejected    bigint,
    errors      bigint,
    file_id     uuid,
    -- The job that ended last for it.
    job_id      uuid,
    error       jsonb,
    ended_at    timestamptz,
    PRIMARY KEY (run_id, n)
);
CREATE INDEX ingest_batches_open ON ingest_batches (run_id, n) WHERE status IN ('fetched', 'hooked');
CREATE INDEX ingest_batches_status ON ingest_batches (run_id, status, n);
CREATE INDEX ingest_batches_manifest ON ingest_batches (manifest) WHERE manifest IS NOT NULL;
CREATE INDEX ingest_batches_hooked ON ingest_batches (hooked_manifest) WHERE hooked_manifest IS NOT NULL;

CREATE TABLE ingest_files (
    id          uuid PRIMARY KEY DEFAULT paddock_id(paddock_now()),
    source      text NOT NULL,
    run_id      uuid NOT NULL,
    batch       int NOT NULL,
    rows        bigint NOT NULL,
    rejected    bigint NOT NULL,
    bytes       bigint NOT NULL,
    manifest    text NOT NULL,
    sha256      text NOT NULL,
    published_at timestamptz NOT NULL DEFAULT paddock_now(),
    UNIQUE (run_id, batch)
);
CREATE INDEX ingest_files_source ON ingest_files (source, id);
CREATE INDEX ingest_files_manifest ON ingest_files (manifest);

-- Where a source goes on though the run that came so far was deleted.
CREATE TABLE ingest_sessions (
    source      text PRIMARY KEY,
    run_id      uuid NOT NULL,
    session     text NOT NULL
);
