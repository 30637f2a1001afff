-- Locks are taken in one order everywhere: the run, its batch, then the group.

-- name: insert_run (durable)
-- No row: another run of the source is live.
INSERT INTO ingest_runs (id, source, owner, group_id, request, batch_size, record_limit, session, max_failed_batches, runtime,
                         transfer_key)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (source) WHERE status IN ('running', 'finishing', 'stopping') DO NOTHING
RETURNING id;

-- name: new_id (durable)
SELECT paddock_id(paddock_now());

-- name: tomorrow (durable)
-- Beyond every job that the group has by now: none is made for a run that is stopping.
SELECT paddock_now() + interval '1 day';

-- name: live_run (durable)
SELECT id, owner FROM ingest_runs WHERE source = $1 AND status IN ('running', 'finishing', 'stopping');

-- name: lock_run (durable)
SELECT * FROM ingest_runs WHERE id = $1 FOR UPDATE;

-- name: lock_batch (durable)
SELECT * FROM ingest_batches WHERE run_id = $1 AND n = $2 FOR UPDATE;

-- name: read_run (durable)
SELECT * FROM ingest_runs WHERE id = $1;

-- name: fetched (durable)
-- Guard: the run still runs and waits for exactly this batch. Of two fetches of one batch the second changes nothing.
UPDATE ingest_runs
SET next_batch = next_batch + $3, fetched = fetched + $4, session = coalesce($5, session), waiting_bytes = waiting_bytes + $6
WHERE id = $1 AND next_batch = $2 AND status = 'running' RETURNING waiting_bytes;

-- name: insert_batches (durable)
INSERT INTO ingest_batches (run_id, n, status, records, duplicates, bytes, fetched_at, session, manifest, sha256, job_id, ended_at,
                            passed, rejected, errors)
SELECT $1, b.n, CASE WHEN b.manifest IS NULL THEN 'published' ELSE 'fetched' END, b.records, b.duplicates, b.bytes, $2,
       b.session, b.manifest, b.sha256, $3, CASE WHEN b.manifest IS NULL THEN paddock_now() END,
       CASE WHEN b.manifest IS NULL THEN 0 END, CASE WHEN b.manifest IS NULL THEN 0 END, CASE WHEN b.manifest IS NULL THEN 0 END
FROM unnest($4::int[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[], $10::text[])
     AS b(n, records, duplicates, bytes, session, manifest, sha256);

-- name: hold (durable)
UPDATE ingest_runs SET held_since = paddock_now() WHERE id = $1;

-- name: let_go (durable)
UPDATE ingest_runs SET held_since = NULL WHERE id = $1;

-- name: fetching (durable)
-- Whether an ingester is at work for this batch, or will be.
SELECT EXISTS (SELECT FROM jobs WHERE group_id = $1 AND kind IN ('run_ingester', 'run_ingester:kubernetes') AND (payload ->> 'batch')::int = $2);

-- name: finishing (durable)
UPDATE ingest_runs SET status = 'finishing', held_since = NULL, error = coalesce($2, error)
WHERE id = $1 AND status = 'running';

-- name: stopping (durable)
UPDATE ingest_runs SET status = 'stopping', held_since = NULL, stop_as = $2, error = coalesce(error, $3)
WHERE id = $1 AND status IN ('running', 'finishing') RETURNING id;

-- name: hooked (durable)
UPDATE ingest_batches
SET status = 'hooked', hooked_manifest = $3, hooked_sha256 = $4, passed = $5, rejected = $6, errors = $7, hooks = $8, job_id = $9
WHERE run_id = $1 AND n = $2 AND status = 'fetched' RETURNING n;

-- name: published (durable)
UPDATE ingest_batches SET status = 'published', file_id = $3, passed = $4, rejected = $5, job_id = $6, ended_at = paddock_now()
WHERE run_id = $1 AND n = $2 AND status = 'hooked' RETURNING n;

-- name: insert_file (durable)
INSERT INTO ingest_files (source, run_id, batch, rows, rejected, bytes, manifest, sha256)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id;

-- name: unpublished (durable)
-- A batch whose step ended without its work.
UPDATE ingest_batches SET status = $3, error = $4, job_id = $5, ended_at = paddock_now()
WHERE run_id = $1 AND n = $2 AND status IN ('fetched', 'hooked') RETURNING n;

-- name: less_waits (durable)
UPDATE ingest_runs SET waiting_bytes = waiting_bytes - $2, failed_batches = failed_batches + $3
WHERE id = $1 RETURNING *;

-- name: end_open_batches (durable)
-- At the end of a run nothing is at work any more: whatever is still open was lost, or cancelled.
UPDATE ingest_batches SET status = $2, error = $3, ended_at = paddock_now()
WHERE run_id = $1 AND status IN ('fetched', 'hooked') RETURNING n;

-- name: end_run (durable)
UPDATE ingest_runs
SET status = $2, error = coalesce(error, $3), failed_batches = failed_batches + $4, waiting_bytes = 0, held_since = NULL,
    ended_at = paddock_now()
WHERE id = $1 AND status IN ('running', 'finishing', 'stopping') RETURNING *;

-- name: close_group (durable)
UPDATE groups SET final = true WHERE id = $1;

-- name: retry_batch (durable)
UPDATE ingest_batches
SET status = 'fetched', error = NULL, ended_at = NULL, hooked_manifest = NULL, hooked_sha256 = NULL, hooks = NULL, passed = NULL,
    rejected = NULL, errors = NULL
WHERE run_id = $1 AND n = $2 AND status = 'failed' RETURNING *;

-- name: more_waits (durable)
UPDATE ingest_runs SET waiting_bytes = waiting_bytes + $2, failed_batches = failed_batches - 1 WHERE id = $1;

-- name: skip_batch (durable)
UPDATE ingest_batches SET status = 'skipped' WHERE run_id = $1 AND n = $2 AND status = 'failed' RETURNING n;

-- name: run_deleting (durable)
UPDATE ingest_runs SET status = 'deleting' WHERE id = $1 AND status IN ('completed', 'failed', 'cancelled', 'deleting') RETURNING id;

-- name: keep_session (durable)
-- The newest run decides, deleted or not.
INSERT INTO ingest_sessions (source, run_id, session) VALUES ($1, $2, $3)
ON CONFLICT (source) DO UPDATE SET run_id = excluded.run_id, session = excluded.session
WHERE ingest_sessions.run_id < excluded.run_id;

-- name: drop_run (durable)
DELETE FROM ingest_runs WHERE id = $1 AND status = 'deleting';

-- name: drop_files (durable)
DELETE FROM ingest_files WHERE run_id = $1;

-- name: run_session (durable)
-- The session after the highest batch up to which every batch is published or skipped, of one run.
SELECT b.session FROM ingest_batches b
WHERE b.run_id = $1 AND b.session IS NOT NULL AND b.status IN ('published', 'skipped')
  AND NOT EXISTS (SELECT FROM ingest_batches o
                  WHERE o.run_id = b.run_id AND o.n < b.n AND o.status NOT IN ('published', 'skipped'))
ORDER BY b.n DESC LIMIT 1;

-- name: committed_session (durable)
-- Of the newest run that has one; a deleted run's was kept.
SELECT f.run_id, f.session FROM (
    SELECT r.id AS run_id, s.session FROM ingest_runs r CROSS JOIN LATERAL (
        SELECT b.session FROM ingest_batches b
        WHERE b.run_id = r.id AND b.session IS NOT NULL AND b.status IN ('published', 'skipped')
          AND NOT EXISTS (SELECT FROM ingest_batches o
                          WHERE o.run_id = b.run_id AND o.n < b.n AND o.status NOT IN ('published', 'skipped'))
        ORDER BY b.n DESC LIMIT 1
    ) s
    WHERE r.source = $1
    UNION ALL SELECT run_id, session FROM ingest_sessions WHERE source = $1
) f ORDER BY f.run_id DESC LIMIT 1;

-- name: transfer_run (relaxed)
SELECT source, group_id, session, transfer_key FROM ingest_runs WHERE id = $1;

-- name: transfer_job (relaxed)
-- The job of a step that lives; a batch that is retried after its run's end is in no group.
SELECT payload, saved FROM jobs
WHERE kind = $1 AND (group_id = $2 OR group_id IS NULL) AND payload ->> 'run_id' = $3 AND (payload ->> 'batch')::int = $4
  AND cleanup_of IS NULL
ORDER BY id DESC LIMIT 1;

-- name: cluster (durable)
SELECT id FROM installation;

-- name: run (relaxed)
SELECT * FROM ingest_runs WHERE id = $1;

-- name: some_runs (relaxed)
SELECT * FROM ingest_runs WHERE id = ANY ($1::uuid[]);

-- name: runs_page (relaxed)
-- However rare a text is, it is looked for in no more than the newest 20,000 of the others.
SELECT * FROM (SELECT * FROM ingest_runs
               WHERE id < $1 AND source = ANY ($3::text[]) AND ($5::text IS NULL OR owner = $5)
                 AND ($4::text[] IS NULL AND status <> 'deleting' OR status = ANY ($4))
               ORDER BY id DESC LIMIT CASE WHEN $6::text IS NULL THEN $2::bigint ELSE 20000 END) newest
WHERE $6::text IS NULL OR position(lower($6) IN lower(concat_ws(' ', source, error ->> 'code', error ->> 'message'))) > 0
ORDER BY id DESC LIMIT $2;

-- name: last_run (relaxed)
SELECT * FROM ingest_runs WHERE source = $1 AND status <> 'deleting' ORDER BY id DESC LIMIT 1;

-- name: batch_counts (relaxed)
SELECT status, count(*) AS n, sum(records)::bigint AS records, sum(passed)::bigint AS passed, sum(rejected)::bigint AS rejected,
       sum(errors)::bigint AS errors, sum(duplicates)::bigint AS duplicates
FROM ingest_batches WHERE run_id = $1 GROUP BY status;

-- name: batches_page (relaxed)
SELECT * FROM ingest_batches WHERE run_id = $1 AND n > $2 AND ($4::text[] IS NULL OR status = ANY ($4)) ORDER BY n LIMIT $3;

-- name: batch (relaxed)
SELECT * FROM ingest_batches WHERE run_id = $1 AND n = $2;

-- name: fetching_now (relaxed)
-- What the ingester that is at work says of itself.
SELECT report, claimed_at FROM jobs
WHERE group_id = $1 AND kind IN ('run_ingester', 'run_ingester:kubernetes') AND status = 'claimed' ORDER BY id DESC LIMIT 1;

-- name: rows_by_day (relaxed)
SELECT published_at::date AS day, sum(rows)::bigint AS rows, sum(rejected)::bigint AS rejected FROM ingest_files
WHERE source = $1 AND published_at >= paddock_now() - make_interval(days => $2) GROUP BY 1 ORDER BY 1;

-- name: source_schedules (relaxed)
SELECT name, every, cron, timezone, enabled, next_at FROM schedules
WHERE kind = 'scheduled_ingest' AND payload ->> 'source' = $1 AND ($2::text IS NULL OR owner = $2) ORDER BY name LIMIT 20;

-- name: batch_jobs (relaxed)
-- Of the steps that are at work or wait, and of those that ended; its fetch may be of several batches. The jobs of a retry after
-- the run's end ($4) are in no group: the events that made them know them, and beside them jobs of other packages' kinds that
-- heard of the batch, which are none of its steps ($5).
WITH later AS (
    SELECT d.job_id FROM events e JOIN deliveries d ON d.event_id = e.id AND d.kind IS NOT NULL
    WHERE $4::timestamptz IS NOT NULL AND e.subject = 'ingest:' || $3::uuid AND e.id >= paddock_least_id($4)
      AND (e.data ->> 'batch')::int = $2
)
SELECT id, kind, status, error_code FROM (
    SELECT id, kind, status, error_code FROM jobs
    WHERE group_id = $1 AND (payload ->> 'batch')::int = $2 AND cleanup_of IS NULL
    UNION ALL
    SELECT id, kind, status, error_code FROM job_history
    WHERE group_id = $1 AND (payload ->> 'batch')::int = $2 AND cleanup_of IS NULL
    UNION ALL
    SELECT id, kind, status, error_code FROM jobs
    WHERE id IN (SELECT job_id FROM later) AND group_id IS NULL AND kind = ANY ($5)
    UNION ALL
    SELECT id, kind, status, error_code FROM job_history
    WHERE id IN (SELECT job_id FROM later) AND group_id IS NULL AND kind = ANY ($5)
) j ORDER BY id LIMIT 50;

-- name: run_jobs (relaxed)
SELECT id, kind, status, report, payload ->> 'batch' AS batch FROM jobs WHERE group_id = $1 ORDER BY id LIMIT 200;

-- name: files_page (relaxed)
SELECT * FROM ingest_files WHERE source = $1 AND id > $2 ORDER BY id LIMIT $3;

-- name: newest_files (relaxed)
SELECT * FROM ingest_files WHERE source = $1 AND id < $2 ORDER BY id DESC LIMIT $3;

-- name: file (relaxed)
SELECT * FROM ingest_files WHERE id = $1;

-- name: source_totals (relaxed)
SELECT count(*) AS files, coalesce(sum(rows), 0)::bigint AS rows, coalesce(sum(bytes), 0)::bigint AS bytes, max(published_at) AS published_at
FROM ingest_files WHERE source = $1;

-- name: waiting_bytes (relaxed)
SELECT source, sum(waiting_bytes)::bigint AS bytes FROM ingest_runs WHERE status IN ('running', 'finishing', 'stopping') GROUP BY source;

-- name: unscheduled (relaxed)
SELECT report ->> 'namespace' AS namespace, max((report ->> 'unscheduled')::int) AS unscheduled FROM jobs
WHERE kind IN ('run_ingester:kubernetes', 'run_hooks:kubernetes') AND status = 'claimed'
  AND report ->> 'phase' = 'waiting for the cluster' AND report ->> 'namespace' IS NOT NULL
GROUP BY 1;

-- name: live_drafts (relaxed)
-- What a step writes into, where its container writes, and what the hooks that have ended left for the next one.
SELECT d.draft FROM jobs CROSS JOIN LATERAL (VALUES
    (saved ->> 'draft'), (saved ->> 'transfer'), (substring(saved ->> 'manifest' FROM '([^/]+)/[^/]+$'))) AS d (draft)
WHERE kind = ANY ($2) AND d.draft = ANY ($1);

-- name: named_manifests (relaxed)
-- Published files; what open batches go on from; and for a week what failed batches may be retried with.
SELECT manifest FROM ingest_files WHERE manifest = ANY ($1)
UNION ALL
SELECT manifest FROM ingest_batches
WHERE manifest = ANY ($1) AND (status IN ('fetched', 'hooked') OR status = 'failed' AND ended_at > paddock_now() - interval '7 days')
UNION ALL
SELECT hooked_manifest FROM ingest_batches WHERE hooked_manifest = ANY ($1) AND status = 'hooked';
