-- Locks are taken in the order in which the end of a job takes them: its part, the group, the snapshot.

-- name: insert_snapshot (durable)
INSERT INTO snapshots (id, owner, name, description, mapping_id, mapping_version, engine, role, request, group_id, ttl, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, paddock_now() + $11);

-- name: insert_parts (durable)
INSERT INTO snapshot_parts (snapshot_id, section, position, name, job_id)
SELECT $1, p.section, p.position, p.name, p.job_id
FROM unnest($2::text[], $3::int[], $4::text[], $5::uuid[]) AS p(section, position, name, job_id);

-- name: end_part (durable)
-- The jobs of a part end one after the other (a retry is made when the one before has ended), so whichever ends now is
-- the current one, whoever asked for it. Of another group than the snapshot's: nobody's.
UPDATE snapshot_parts p
SET job_id = $4, status = $5, rows = $6, bytes = $7, files = $8, manifest = $9, manifest_sha256 = $10, query_id = $11,
    query_started_at = $12, error = $13, started_at = coalesce(p.started_at, $14)
FROM snapshots s
WHERE p.snapshot_id = $1 AND p.section = $2 AND p.name = $3 AND s.id = p.snapshot_id AND s.group_id = $15
  AND s.status <> 'deleting'
RETURNING true;

-- name: parts (durable)
SELECT section, position, name, job_id, status, rows, bytes, files, manifest, manifest_sha256, query_id,
       query_started_at, error, started_at
FROM snapshot_parts WHERE snapshot_id = $1 ORDER BY section DESC, position;

-- name: settle_snapshot (durable)
UPDATE snapshots
SET status = $2, error = $3, node_counts = $4, edge_counts = $5, size_bytes = $6, ended_at = paddock_now()
WHERE id = $1 AND group_id = $7 AND status <> 'deleting' RETURNING true;

-- name: close_group (durable)
-- Retrying one of its jobs is refused from now on.
UPDATE groups SET final = true WHERE id = $1;

-- name: group_of_snapshot (durable)
SELECT group_id FROM snapshots WHERE id = $1;

-- name: lock_group (durable)
SELECT open FROM groups WHERE id = $1 FOR UPDATE;

-- name: lock_snapshot (durable)
SELECT *, coalesce(expires_at <= paddock_now(), false) AS is_expired FROM snapshots WHERE id = $1 FOR UPDATE;

-- name: share_snapshot (durable)
-- Whoever deletes, retries or settles it waits, and is waited for; several may take a use of it at once.
SELECT true FROM snapshots WHERE id = $1 FOR SHARE;

-- name: snapshot_in_transaction (durable)
SELECT * FROM snapshot_states WHERE id = $1;

-- name: take_use (durable)
INSERT INTO snapshot_uses (snapshot_id, subject, owner, name) VALUES ($1, $2, $3, $4)
ON CONFLICT (snapshot_id, subject) DO NOTHING;

-- name: rename_use (durable)
UPDATE snapshot_uses SET name = $2 WHERE subject = $1;

-- name: give_back_uses (durable)
DELETE FROM snapshot_uses WHERE subject = $1;

-- name: uses (durable)
SELECT subject, owner, name FROM snapshot_uses WHERE snapshot_id = $1 ORDER BY taken_at, subject LIMIT $2;

-- name: live_parts (durable)
SELECT id, payload ->> 'section' AS section, payload ->> 'name' AS name FROM jobs WHERE group_id = $1 ORDER BY id;

-- name: lock_ended_jobs (durable)
-- As a retry of a single job does: of two retries at once the second finds the first.
SELECT id, status FROM job_history WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE;

-- name: retry_parts (durable)
UPDATE snapshot_parts p
SET job_id = i.job_id, status = 'pending', rows = NULL, bytes = NULL, files = NULL, manifest = NULL,
    manifest_sha256 = NULL, query_id = NULL, query_started_at = NULL, error = NULL
FROM unnest($2::text[], $3::text[], $4::uuid[]) AS i(section, name, job_id)
WHERE p.snapshot_id = $1 AND p.section = i.section AND p.name = i.name;

-- name: reopen_snapshot (durable)
UPDATE snapshots
SET status = 'pending', error = NULL, node_counts = NULL, edge_counts = NULL, size_bytes = NULL, ended_at = NULL, group_id = $2
WHERE id = $1;

-- name: snapshot_deleting (durable)
UPDATE snapshots SET status = 'deleting', removal_job = $2 WHERE id = $1;

-- name: job_is_live (durable)
SELECT true FROM jobs WHERE id = $1;

-- name: drop_snapshot (durable)
DELETE FROM snapshots WHERE id = $1 AND status = 'deleting';

-- name: expired_snapshots (relaxed)
-- By the time they expired, those after $1, $2. One whose jobs are at work, or that is in use, is refused when its turn comes.
SELECT s.id, s.expires_at FROM snapshots s
WHERE s.expires_at <= paddock_now() AND s.status <> 'deleting'
  AND ($1::timestamptz IS NULL OR (s.expires_at, s.id) > ($1, $2::uuid))
ORDER BY s.expires_at, s.id LIMIT $3;

-- name: abandoned_snapshots (relaxed)
-- Marked, and the job that takes their files away was given up.
SELECT s.id FROM snapshots s
WHERE s.status = 'deleting' AND ($1::uuid IS NULL OR s.id > $1)
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = s.removal_job)
ORDER BY s.id LIMIT $2;

-- name: now (durable)
SELECT paddock_now();

-- name: snapshot_counts (relaxed)
SELECT status, count(*) AS n FROM snapshot_states GROUP BY status;

-- name: snapshot (relaxed)
SELECT * FROM snapshot_states WHERE id = $1;

-- name: some_snapshots (relaxed)
SELECT * FROM snapshot_states WHERE id = ANY ($1::uuid[]);

-- name: snapshots_page (relaxed)
SELECT * FROM snapshot_states
WHERE id < $1 AND ($3::uuid IS NULL OR mapping_id = $3) AND ($4::text[] IS NULL AND status <> 'deleting' OR status = ANY ($4))
  AND ($5::text IS NULL OR position(lower($5) IN lower(name || E'\n' || description)) > 0)
  AND ($6::text IS NULL OR lower(name) = lower($6))
ORDER BY id DESC LIMIT $2;

-- name: snapshots_page_of_owner (relaxed)
SELECT * FROM snapshot_states
WHERE owner = $7 AND id < $1 AND ($3::uuid IS NULL OR mapping_id = $3)
  AND ($4::text[] IS NULL AND status <> 'deleting' OR status = ANY ($4))
  AND ($5::text IS NULL OR position(lower($5) IN lower(name || E'\n' || description)) > 0)
  AND ($6::text IS NULL OR lower(name) = lower($6))
ORDER BY owner DESC, id DESC LIMIT $2;

-- name: parts_shown (relaxed)
SELECT section, position, name, job_id, status, rows, bytes, files, manifest, manifest_sha256, query_id,
       query_started_at, error, started_at
FROM snapshot_parts WHERE snapshot_id = $1 ORDER BY section DESC, position;

-- name: live_parts_shown (relaxed)
SELECT id, status, report, started_at, payload ->> 'section' AS section, payload ->> 'name' AS name
FROM jobs WHERE group_id = $1;
