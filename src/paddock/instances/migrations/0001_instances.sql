-- Instances: short-lived graph databases, each made from a snapshot of a mapping.

CREATE TABLE instances (
    id          uuid PRIMARY KEY,
    owner       text NOT NULL,
    name        text NOT NULL,
    description text NOT NULL DEFAULT '',
    status      text NOT NULL CHECK (status IN ('waiting_for_snapshot', 'starting', 'running', 'stopping', 'failed')),
    wrapper_type text NOT NULL,
    mapping_id  uuid NOT NULL,
    mapping_version int NOT NULL,
    -- What it is loaded from; while it waits for that, `pending_snapshot_id` names it.
    snapshot_id uuid,
    pending_snapshot_id uuid,
    -- Whether the snapshot was made for it: then deleting it while it waits cancels the snapshot.
    made_snapshot boolean NOT NULL DEFAULT false,
    cpu_cores   int NOT NULL,
    memory_gb   int NOT NULL,
    -- Whether somebody asked for that much; else it follows from the snapshot's size.
    memory_asked boolean NOT NULL,
    -- How often it got more because a load ran out of memory.
    memory_steps int NOT NULL DEFAULT 0,
    ttl         interval NOT NULL,
    inactivity_timeout interval NOT NULL,
    -- Of the start that counts: all of it is written before anything runs. The token is never shown or logged.
    generation  uuid,
    generation_number int NOT NULL DEFAULT 0,
    pod_name    text,
    token       text,
    -- When that start was asked for.
    generation_at timestamptz,
    -- A start of it failed, and its cleanup begins the next one.
    again       boolean NOT NULL DEFAULT false,
    counts      jsonb,
    dangling_edges jsonb,
    -- Of this generation, as last seen by whoever proxied.
    engine_restarts int NOT NULL DEFAULT 0,
    error       jsonb,
    log         text,
    -- Who asked for its end, and why.
    deleted_by  text,
    delete_reason text,
    created_at  timestamptz NOT NULL DEFAULT paddock_now(),
    -- When it first ran since it was made or reopened.
    started_at  timestamptz,
    ended_at    timestamptz,
    last_activity_at timestamptz,
    -- From the first time it ran, or from its failure.
    expires_at  timestamptz
);
CREATE INDEX instances_owner ON instances (owner, id);
CREATE INDEX instances_status ON instances (status, id);
CREATE INDEX instances_pending ON instances (pending_snapshot_id) WHERE pending_snapshot_id IS NOT NULL;
CREATE INDEX instances_expiring ON instances (expires_at) WHERE expires_at IS NOT NULL;
CREATE UNIQUE INDEX instances_pod ON instances (pod_name) WHERE pod_name IS NOT NULL;

-- With whom an owner shares: they read and query, and change nothing.
CREATE TABLE instance_grants (
    instance_id uuid NOT NULL REFERENCES instances ON DELETE CASCADE,
    owner       text NOT NULL,
    granted_by  text NOT NULL,
    granted_at  timestamptz NOT NULL DEFAULT paddock_now(),
    PRIMARY KEY (instance_id, owner)
);
CREATE INDEX instance_grants_owner ON instance_grants (owner, instance_id);

-- Queries that people keep. They belong to the mapping, because instances are short-lived.
CREATE TABLE saved_queries (
    id          uuid PRIMARY KEY,
    mapping_id  uuid NOT NULL REFERENCES mappings ON DELETE CASCADE,
    owner       text NOT NULL,
    name        text NOT NULL,
    query       text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT paddock_now()
);
CREATE UNIQUE INDEX saved_queries_name ON saved_queries (mapping_id, lower(name));

-- The folder of the local runtime that this database's instances live in.
CREATE TABLE instance_place (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    place text NOT NULL
);

-- An instance as it may be shown, with what the start at work for it has saved of its progress: without its token, and
-- without its log, which is long.
CREATE VIEW instance_states AS
SELECT i.id, i.owner, i.name, i.description, i.status, i.wrapper_type, i.mapping_id, i.mapping_version, i.snapshot_id,
       i.pending_snapshot_id, i.cpu_cores, i.memory_gb, i.ttl, i.inactivity_timeout, i.generation, i.generation_number,
       i.pod_name, i.counts, i.dangling_edges, i.error, i.created_at, i.started_at, i.ended_at, i.last_activity_at,
       i.expires_at, j.id AS job_id, j.saved -> 'progress' AS progress,
       ARRAY(SELECT g.owner FROM instance_grants g WHERE g.instance_id = i.id ORDER BY g.owner LIMIT 100) AS shared_with
FROM instances i LEFT JOIN jobs j ON j.lock_key = 'instance:' || i.id;
