-- name: new_id (durable)
SELECT paddock_id(paddock_now());

-- name: now (durable)
SELECT paddock_now();

-- name: insert_export (durable)
INSERT INTO exports (id, job_id, owner, engine, role, request, ttl, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, paddock_now() + $7::interval);

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
-- Long queries are cut and large parameters left out: a page holds a thousand exports.
SELECT id, job_id, owner, engine, role, status, rows, bytes, files, manifest, manifest_sha256, error, ttl, expires_at,
       created_at, ended_at, CASE WHEN octet_length(request::text) <= 4000 THEN request
           WHEN length(request ->> 'sql') > 1000
           THEN request - 'parameters' || jsonb_build_object('sql', left(request ->> 'sql', 1000) || '…')
           ELSE request - 'parameters' END AS request
FROM exports WHERE id < $1 ORDER BY id DESC LIMIT $2;

-- name: exports_page_of_owner (relaxed)
SELECT id, job_id, owner, engine, role, status, rows, bytes, files, manifest, manifest_sha256, error, ttl, expires_at,
       created_at, ended_at, CASE WHEN octet_length(request::text) <= 4000 THEN request
           WHEN length(request ->> 'sql') > 1000
           THEN request - 'parameters' || jsonb_build_object('sql', left(request ->> 'sql', 1000) || '…')
           ELSE request - 'parameters' END AS request
FROM exports WHERE owner = $3 AND id < $1 ORDER BY id DESC LIMIT $2;

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

-- name: expired_exports (durable)
-- One that is being made again, or downloaded, waits for that end.
SELECT e.id, e.owner FROM exports e
WHERE e.expires_at <= paddock_now() AND e.status IN ('completed', 'failed', 'cancelled')
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = e.job_id) AND NOT EXISTS (SELECT FROM jobs j WHERE j.retry_of = e.job_id)
  AND NOT EXISTS (SELECT FROM export_downloads d WHERE d.export_id = e.id AND d.until > paddock_now())
ORDER BY e.expires_at LIMIT $1 FOR UPDATE OF e SKIP LOCKED;

-- name: begin_download (relaxed)
-- FOR SHARE: a deletion at the same time is over before this, and seen, or comes after it, and sees this.
INSERT INTO export_downloads (export_id, actor, until)
SELECT id, $2, paddock_now() + $3 FROM exports WHERE id = $1 AND status = 'completed' FOR SHARE RETURNING id;

-- name: keep_download (relaxed)
UPDATE export_downloads SET until = paddock_now() + $2 WHERE id = $1;

-- name: end_download (relaxed)
DELETE FROM export_downloads WHERE id = $1;

-- name: live_downloads (durable)
SELECT DISTINCT actor FROM export_downloads WHERE export_id = $1 AND until > paddock_now() ORDER BY actor;

-- name: forget_downloads (durable)
DELETE FROM export_downloads WHERE until <= paddock_now();

-- name: live_drafts (relaxed)
-- Of jobs that have not ended: what they write, or copy from, is nobody's leftover.
SELECT payload ->> 'output' AS output, saved ->> 'draft' AS draft FROM jobs
WHERE kind = 'export' AND saved ->> 'draft' = ANY ($1::text[]);

-- name: named_manifests (relaxed)
SELECT manifest FROM exports WHERE manifest = ANY ($1::text[])
UNION ALL SELECT manifest FROM snapshot_parts WHERE manifest = ANY ($1::text[]);

-- name: limits (relaxed)
SELECT name, value FROM settings WHERE name = ANY ($1::text[]);

-- name: is_offered (relaxed)
SELECT EXISTS (SELECT FROM sessions WHERE expires_at > paddock_now() AND NOT dying AND $1::text = ANY (kinds));

-- name: is_locked (relaxed)
SELECT EXISTS (SELECT FROM jobs WHERE lock_key = $1);

-- name: lock_questions (durable)
SELECT pg_advisory_xact_lock(7236, hashtext($1));

-- name: questions (durable)
-- In two parts, each with an index that leads to few rows: what waits by its kind, what runs by being held.
SELECT count(*) FROM (
    (SELECT FROM jobs WHERE kind = 'describe' AND attempt_id IS NULL AND owner = $1 LIMIT $2)
    UNION ALL (SELECT FROM jobs WHERE kind = 'describe' AND attempt_id IS NOT NULL AND owner = $1 LIMIT $2)) found;
