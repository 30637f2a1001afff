-- Dumps: databases that people asked for as one file. A file becomes real in the transaction that ends its job (the kind's
-- `on_end`), by being named here. A download reads exactly what is named.

CREATE TABLE dumps (
    -- export_YYYYMMDD-HHMMSS_xxxxxx: in the order of their making, as far as a second tells.
    id          text COLLATE "C" PRIMARY KEY,
    -- The job that ended last, or the first one; a retry is found by its `retry_of`.
    job_id      uuid NOT NULL,
    database    text NOT NULL,
    owner       text NOT NULL,
    format      text NOT NULL,
    -- What was asked for, without the callback's URL.
    request     jsonb NOT NULL,
    -- Often a secret: read by the job that calls it, shown nowhere.
    callback_url text,
    status      text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'completed', 'failed', 'cancelled', 'deleting')),
    key         text,
    etag        text,
    size        bigint,
    -- As how many plain objects it is stored, `key/000001` and so on; 0: as one under its key.
    objects     int,
    part_size   bigint,
    digest      text,
    rows        bigint,
    table_count int,
    -- Rows of each; null where there are too many to name: then they stand in the file only.
    tables      jsonb,
    point_in_time timestamptz,
    restarts    int,
    file_name   text,
    media_type  text,
    error       jsonb,
    -- The schedule that had it made, and how many of its completed ones are kept.
    schedule    text,
    keep_last   int,
    -- So long after its end it goes; those a schedule counts go by that, as long as it does.
    kept        interval NOT NULL,
    expires_at  timestamptz,
    created_at  timestamptz NOT NULL DEFAULT paddock_now(),
    ended_at    timestamptz,
    CHECK (status <> 'completed' OR (key IS NOT NULL AND size IS NOT NULL AND digest IS NOT NULL AND part_size IS NOT NULL))
);
CREATE INDEX dumps_database ON dumps (database, id);
CREATE INDEX dumps_owner ON dumps (owner, id);
CREATE INDEX dumps_job ON dumps (job_id);
CREATE INDEX dumps_waiting ON dumps (id) WHERE status = 'pending';
CREATE INDEX dumps_expiring ON dumps (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX dumps_counted ON dumps (id) WHERE status = 'completed' AND expires_at IS NULL;
CREATE INDEX dumps_schedule ON dumps (schedule, id) WHERE schedule IS NOT NULL;

-- What an owner's callbacks are signed with. Subscriptions have a secret each; a callback has only its owner.
CREATE TABLE webhook_keys (
    owner       text PRIMARY KEY,
    secret      text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT paddock_now()
);
