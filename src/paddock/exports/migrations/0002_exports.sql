-- Exports: files that people asked for, mappings with their versions, and the snapshots made from them.
-- Files become real in the transaction that ends their job (the kind's `on_end`), by naming their manifest here.

CREATE TABLE exports (
    id          uuid PRIMARY KEY,
    -- The job that ended last, or the first one; a retry is found by its `retry_of`.
    job_id      uuid NOT NULL,
    owner       text NOT NULL,
    engine      text NOT NULL,
    role        text,
    -- What was asked for: sql or table, parameters, format, options, limits, destination.
    request     jsonb NOT NULL,
    status      text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'completed', 'failed', 'cancelled', 'deleting')),
    rows        bigint,
    bytes       bigint,
    files       int,
    manifest    text,
    manifest_sha256 text,
    error       jsonb,
    ttl         interval,
    expires_at  timestamptz,
    created_at  timestamptz NOT NULL DEFAULT paddock_now(),
    ended_at    timestamptz
);
CREATE INDEX exports_owner ON exports (owner, id);
CREATE INDEX exports_job ON exports (job_id);
CREATE INDEX exports_manifest ON exports (manifest) WHERE manifest IS NOT NULL;
CREATE INDEX exports_expiring ON exports (expires_at) WHERE expires_at IS NOT NULL;

-- Downloads under way: they hold up a deletion. Each is renewed while it moves; what a killed server left runs out.
CREATE UNLOGGED TABLE export_downloads (
    id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    export_id   uuid NOT NULL REFERENCES exports ON DELETE CASCADE,
    actor       text NOT NULL,
    until       timestamptz NOT NULL
);
CREATE INDEX export_downloads_export ON export_downloads (export_id);

CREATE TABLE mappings (
    id          uuid PRIMARY KEY,
    owner       text NOT NULL,
    name        text NOT NULL,
    description text NOT NULL DEFAULT '',
    -- The newest; versions never change and are never taken away one by one.
    version     int NOT NULL,
    ttl         interval,
    created_at  timestamptz NOT NULL DEFAULT paddock_now(),
    updated_at  timestamptz NOT NULL DEFAULT paddock_now()
);
CREATE UNIQUE INDEX mappings_name ON mappings (owner, lower(name));
CREATE INDEX mappings_owner ON mappings (owner, id);

CREATE TABLE mapping_versions (
    mapping_id  uuid NOT NULL REFERENCES mappings ON DELETE CASCADE,
    version     int NOT NULL,
    definition  jsonb NOT NULL,
    change_description text NOT NULL,
    created_by  text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT paddock_now(),
    PRIMARY KEY (mapping_id, version)
);

CREATE TABLE snapshots (
    id          uuid PRIMARY KEY,
    owner       text NOT NULL,
    name        text NOT NULL,
    description text NOT NULL DEFAULT '',
    mapping_id  uuid NOT NULL,
    mapping_version int NOT NULL,
    engine      text NOT NULL,
    role        text,
    -- What every export job of it is told besides its definition; a retry tells the same.
    request     jsonb NOT NULL,
    group_id    uuid NOT NULL,
    -- As its jobs' last end left it. `snapshot_states` says what it is now.
    status      text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'ready', 'failed', 'cancelled', 'deleting')),
    -- Takes its files away, once it is `deleting`.
    removal_job uuid,
    error       jsonb,
    node_counts jsonb,
    edge_counts jsonb,
    size_bytes  bigint,
    ttl         interval,
    expires_at  timestamptz,
    created_at  timestamptz NOT NULL DEFAULT paddock_now(),
    ended_at    timestamptz
);
-- No foreign key to its mapping: one that is `deleting` does not keep it alive. Making a snapshot locks the mapping's row,
-- and so does deleting a mapping.
CREATE INDEX snapshots_owner ON snapshots (owner, id);
CREATE INDEX snapshots_mapping ON snapshots (mapping_id, mapping_version);
CREATE INDEX snapshots_group ON snapshots (group_id);
CREATE INDEX snapshots_expiring ON snapshots (expires_at) WHERE expires_at IS NOT NULL;

-- One row for each node and edge definition; it holds what the last job of its retry chain gave. Kept here because
-- jobs leave history earlier than a snapshot may live.
CREATE TABLE snapshot_parts (
    snapshot_id uuid NOT NULL REFERENCES snapshots ON DELETE CASCADE,
    section     text NOT NULL CHECK (section IN ('nodes', 'edges')),
    position    int NOT NULL,
    name        text NOT NULL,
    job_id      uuid NOT NULL,
    status      text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'completed', 'failed', 'cancelled')),
    rows        bigint,
    bytes       bigint,
    files       int,
    manifest    text,
    manifest_sha256 text,
    query_id    text,
    query_started_at timestamptz,
    error       jsonb,
    -- When one of its jobs was first claimed, as far as they have ended.
    started_at  timestamptz,
    PRIMARY KEY (snapshot_id, section, name)
);
CREATE INDEX snapshot_parts_manifest ON snapshot_parts (manifest) WHERE manifest IS NOT NULL;

-- A snapshot as it is: while its group is open (a retry of a single job opens it again) or was not settled yet, it is
-- `pending`, and `creating` as soon as one of its jobs was ever claimed.
CREATE VIEW snapshot_states AS
SELECT s.id, s.owner, s.name, s.description, s.mapping_id, s.mapping_version, s.engine, s.role, s.request, s.group_id,
       CASE WHEN s.status = 'deleting' OR g.id IS NULL OR (g.ended_at IS NOT NULL AND NOT g.hook_due) THEN s.status
            WHEN EXISTS (SELECT FROM snapshot_parts p WHERE p.snapshot_id = s.id AND p.started_at IS NOT NULL)
              OR EXISTS (SELECT FROM jobs j WHERE j.group_id = s.group_id AND j.started_at IS NOT NULL) THEN 'creating'
            ELSE 'pending' END AS status,
       s.removal_job, s.error, s.node_counts, s.edge_counts, s.size_bytes, s.ttl, s.expires_at, s.created_at, s.ended_at
FROM snapshots s LEFT JOIN groups g ON g.id = s.group_id;

-- What people look at with SQL, with the columns the older table had. A query's address is a capability: never shown.
CREATE VIEW export_jobs AS
SELECT j.id, j.status, j.owner, j.claimed_by, j.claimed_at,
       CASE WHEN j.status = 'claimed' THEN s.expires_at ELSE j.due_at END AS visible_at,
       greatest(j.created_at, j.claimed_at, j.saved_at) AS updated_at, j.created_at, NULL::timestamptz AS completed_at,
       (j.payload ->> 'snapshot_id')::uuid AS snapshot_id, j.payload ->> 'section' AS entity_type,
       j.payload ->> 'name' AS entity_name, j.payload ->> 'engine' AS engine, j.role AS starburst_role,
       j.saved ->> 'query_id' AS starburst_query_id,
       CASE WHEN j.saved #>> '{handle,next_uri}' IS NOT NULL THEN '********' END AS next_uri,
       (j.saved ->> 'poll_count')::int AS poll_count, j.submitted_at,
       (j.report ->> 'rows')::bigint AS row_count, (j.report ->> 'bytes')::bigint AS size_bytes,
       j.failure_count + j.cluster_count + j.lost_count + 1 AS attempt_count, j.error_code, j.error_message
FROM jobs j LEFT JOIN sessions s ON s.id = j.session_id AND j.attempt_id IS NOT NULL
WHERE j.kind = 'export' AND j.cleanup_of IS NULL
UNION ALL
SELECT h.id, h.status, h.owner, h.claimed_by, h.claimed_at, NULL, h.completed_at, h.created_at, h.completed_at,
       (h.payload ->> 'snapshot_id')::uuid, h.payload ->> 'section', h.payload ->> 'name', h.payload ->> 'engine', h.role,
       h.result ->> 'query_id', NULL, (h.saved ->> 'poll_count')::int, h.submitted_at,
       (h.result ->> 'rows')::bigint, (h.result ->> 'bytes')::bigint,
       h.failure_count + h.cluster_count + h.lost_count + 1, h.error_code, h.error_message
FROM job_history h WHERE h.kind = 'export' AND h.cleanup_of IS NULL;

-- The read-only role of dashboards and autoscalers, where the operator has made one: CREATE ROLE paddock_reader.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paddock_reader') THEN
        GRANT SELECT ON export_jobs, job_queue TO paddock_reader;
        GRANT EXECUTE ON FUNCTION paddock_backlog(text[]) TO paddock_reader;
    END IF;
END $$;
