-- name: new_id (durable)
SELECT paddock_id(paddock_now());

-- name: now (durable)
SELECT paddock_now();

-- name: insert_export (durable)
INSERT INTO exports (id, job_id, owner, engine, role, request, ttl, expires_at, name)
VALUES ($1, $2, $3, $4, $5, $6, $7, paddock_now() + $7::interval, $8);

-- name: lock_quota (durable)
-- One owner's requests come one after the other: the second then sees what the first made.
SELECT pg_advisory_xact_lock(7235, hashtext($1));

-- name: owner_bytes (durable)
-- What an owner's files take, and what those being made have reported, or may take where their request says it.
-- LATERAL, as in `current_jobs`: two looks into small indexes for each export that has no files.
SELECT coalesce(sum(bytes) FILTER (WHERE status = 'completed'), 0) AS held,
       coalesce(sum(greatest((live.report ->> 'bytes')::numeric, (e.request ->> 'max_bytes')::numeric))
           FILTER (WHERE live.id IS NOT NULL), 0) AS coming
FROM exports e LEFT JOIN LATERAL (
    SELECT id, report FROM jobs WHERE id = e.job_id AND e.status <> 'completed'
    UNION ALL SELECT id, report FROM jobs WHERE retry_of = e.job_id AND e.status <> 'completed' LIMIT 1
) live ON true
WHERE e.owner = $1 AND e.status <> 'deleting';

-- name: end_export (durable)
-- Part of the transaction that ends the job. A retry is made when the one before has ended, so whichever ends now is the
-- current one; ids do not tell, a clock may have been set back.
UPDATE exports SET job_id = $2, status = $3, rows = $4, bytes = $5, files = $6, manifest = $7, manifest_sha256 = $8,
    error = $9, ended_at = paddock_now()
WHERE id = $1 AND status <> 'deleting'
RETURNING id;

-- name: repeat_failed (durable)
-- A job that completed may be run again; what it made stays when that comes to nothing.
UPDATE exports SET job_id = $2 WHERE id = $1 AND status = 'completed' RETURNING id;

-- name: export (relaxed)
SELECT * FROM exports WHERE id = $1;

-- name: export_for_update (durable)
SELECT * FROM exports WHERE id = $1 FOR UPDATE;

-- name: export_of_job (relaxed)
SELECT * FROM exports WHERE job_id = $1;

-- name: exports_page (relaxed)
-- Long queries are cut and large parameters left out: a page holds a thousand exports. However rare a match is, no more than
-- 20,000 are looked at.
SELECT id, name, job_id, owner, engine, role, status, rows, bytes, files, manifest, manifest_sha256, error, ttl, expires_at,
       created_at, ended_at, CASE WHEN octet_length(request::text) <= 4000 THEN request
           WHEN length(request ->> 'sql') > 1000
           THEN request - 'parameters' || jsonb_build_object('sql', left(request ->> 'sql', 1000) || '…')
           ELSE request - 'parameters' END AS request
FROM (SELECT * FROM exports WHERE id < $1 ORDER BY id DESC LIMIT 20000) newest
WHERE ($3::text IS NULL OR status = $3) AND ($4::text IS NULL OR engine = $4)
  AND ($5::text IS NULL OR position(lower($5) IN lower(concat_ws(' ', name, request ->> 'table', request ->> 'sql'))) > 0)
  AND ($6::text IS NULL OR lower(name) = lower($6))
ORDER BY id DESC LIMIT $2;

-- name: exports_page_of_owner (relaxed)
SELECT id, name, job_id, owner, engine, role, status, rows, bytes, files, manifest, manifest_sha256, error, ttl, expires_at,
       created_at, ended_at, CASE WHEN octet_length(request::text) <= 4000 THEN request
           WHEN length(request ->> 'sql') > 1000
           THEN request - 'parameters' || jsonb_build_object('sql', left(request ->> 'sql', 1000) || '…')
           ELSE request - 'parameters' END AS request
FROM (SELECT * FROM exports WHERE owner = $7 AND id < $1 ORDER BY owner DESC, id DESC LIMIT 20000) newest
WHERE ($3::text IS NULL OR status = $3) AND ($4::text IS NULL OR engine = $4)
  AND ($5::text IS NULL OR position(lower($5) IN lower(concat_ws(' ', name, request ->> 'table', request ->> 'sql'))) > 0)
  AND ($6::text IS NULL OR lower(name) = lower($6))
ORDER BY id DESC LIMIT $2;

-- name: exports_called (relaxed)
-- By a part of the name or of the table's name, each time somebody pauses in typing: the newest 2,000 and nothing large of them.
-- What is over 2,000 bytes where it is stored has a query in it and no table, and is not read for that.
SELECT id, name, job_id, owner, engine, role, status, rows, bytes, files, manifest, manifest_sha256, error, ttl, expires_at,
       created_at, ended_at, request - 'parameters' - 'sql' AS request
FROM (SELECT * FROM exports ORDER BY id DESC LIMIT 2000) newest
WHERE position(lower($2) IN lower(name)) > 0
   OR CASE WHEN pg_column_size(request) <= 2000 THEN position(lower($2) IN lower(request ->> 'table')) > 0 END
ORDER BY id DESC LIMIT $1;

-- name: exports_called_of_owner (relaxed)
SELECT id, name, job_id, owner, engine, role, status, rows, bytes, files, manifest, manifest_sha256, error, ttl, expires_at,
       created_at, ended_at, request - 'parameters' - 'sql' AS request
FROM (SELECT * FROM exports WHERE owner = $3 ORDER BY owner DESC, id DESC LIMIT 2000) newest
WHERE position(lower($2) IN lower(name)) > 0
   OR CASE WHEN pg_column_size(request) <= 2000 THEN position(lower($2) IN lower(request ->> 'table')) > 0 END
ORDER BY id DESC LIMIT $1;

-- name: current_jobs (relaxed)
-- The job itself, or the live one that takes its place.
SELECT wanted.id AS asked, j.id FROM unnest($1::uuid[]) AS wanted(id)
JOIN LATERAL (SELECT id FROM jobs WHERE id = wanted.id UNION ALL SELECT id FROM jobs WHERE retry_of = wanted.id LIMIT 1) j ON true;

-- name: export_deleting (durable)
UPDATE exports SET status = 'deleting' WHERE id = $1;

-- name: removal_is_live (durable)
SELECT true FROM jobs WHERE kind = 'remove_files' AND payload ->> 'export_id' = $1 LIMIT 1;

-- name: drop_export (durable)
DELETE FROM exports WHERE id = $1 AND status = 'deleting';

-- name: expired_exports (relaxed)
-- By the time they expired, those after $1, $2. One that is being made again, or downloaded, is refused when its turn comes.
SELECT e.id, e.expires_at FROM exports e
WHERE e.expires_at <= paddock_now() AND e.status IN ('completed', 'failed', 'cancelled')
  AND ($1::timestamptz IS NULL OR (e.expires_at, e.id) > ($1, $2::uuid))
ORDER BY e.expires_at, e.id LIMIT $3;

-- name: expired_export_for_update (durable)
SELECT * FROM exports WHERE id = $1 AND expires_at <= paddock_now() AND status IN ('completed', 'failed', 'cancelled') FOR UPDATE;

-- name: abandoned_exports (relaxed)
-- Marked, and the job that takes their files away was given up.
SELECT e.id FROM exports e
WHERE e.status = 'deleting' AND ($1::uuid IS NULL OR e.id > $1)
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.kind = 'remove_files' AND j.payload ->> 'export_id' = e.id::text)
ORDER BY e.id LIMIT $2;

-- name: live_drafts (relaxed)
-- Of jobs that have not ended: what they write, or copy from, is nobody's leftover.
SELECT payload ->> 'output' AS output, saved ->> 'draft' AS draft FROM jobs
WHERE kind = 'export' AND saved ->> 'draft' = ANY ($1::text[]);

-- name: named_manifests (relaxed)
SELECT manifest FROM exports WHERE manifest = ANY ($1::text[])
UNION ALL SELECT manifest FROM snapshot_parts WHERE manifest = ANY ($1::text[]);

-- name: owners_of_tables (relaxed)
SELECT DISTINCT capability FROM schema_migrations;

-- name: limits (relaxed)
SELECT name, value FROM settings WHERE name = ANY ($1::text[]);

-- name: is_locked (relaxed)
SELECT EXISTS (SELECT FROM jobs WHERE lock_key = $1);

-- name: export_counts (relaxed)
SELECT status, count(*) AS n FROM exports GROUP BY status;
