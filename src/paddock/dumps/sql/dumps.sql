-- name: now (durable)
SELECT paddock_now();

-- name: insert_dump (durable)
-- Nothing: the id is taken. Its job comes right after, in the same transaction.
INSERT INTO dumps (id, job_id, database, owner, format, request, callback_url, kept, schedule, keep_last)
VALUES ($1, '00000000-0000-0000-0000-000000000000', $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT DO NOTHING RETURNING id;

-- name: dump_has_job (durable)
UPDATE dumps SET job_id = $2 WHERE id = $1;

-- name: end_dump (durable)
-- Part of the transaction that ends the job. A retry is made when the one before has ended, so whichever ends now is the
-- current one.
UPDATE dumps SET job_id = $2, status = $3, key = $4, etag = $5, size = $6, objects = $7, part_size = $8, digest = $9,
    rows = $10, table_count = $11, tables = $12, point_in_time = $13, restarts = $14, file_name = $15, media_type = $16,
    error = $17,
    ended_at = paddock_now(),
    expires_at = CASE WHEN $3 = 'completed' AND keep_last IS NOT NULL THEN NULL ELSE paddock_now() + kept END
WHERE id = $1 AND status <> 'deleting'
RETURNING id, callback_url;

-- name: repeat_failed (durable)
-- A job that completed may be run again; what it made stays when that comes to nothing.
UPDATE dumps SET job_id = $2 WHERE id = $1 AND status = 'completed' RETURNING id;

-- name: dump (relaxed)
-- With the job at work for it, which is its own or the live one that took its place: one snapshot, so that no end falls
-- between the two. `frozen_at`: what the turn at work has frozen; `live_problem`: why it waits to be tried again;
-- `last_report`: how far one that came to nothing had come (the times keep the search to one or two days of the history).
SELECT d.*, j.id AS live_id, j.status AS live_status, j.turn_count AS live_turns, j.report AS live_report,
       CASE WHEN j.status = 'pending' AND j.failure_count + j.cluster_count > 0 THEN j.errors -> -1 ->> 'message' END
           AS live_problem,
       CASE j.status WHEN 'claimed' THEN j.saved ->> 'point_in_time' END AS frozen_at, paddock_now() AS now,
       CASE WHEN d.status IN ('failed', 'cancelled') THEN (
           SELECT h.report FROM job_history h WHERE h.id = d.job_id
               AND h.completed_at BETWEEN d.ended_at - interval '1 minute' AND d.ended_at + interval '1 minute' LIMIT 1)
       END AS last_report
FROM dumps d LEFT JOIN LATERAL (
    SELECT id, status, turn_count, report, saved, errors, failure_count, cluster_count FROM jobs WHERE id = d.job_id
    UNION ALL SELECT id, status, turn_count, report, saved, errors, failure_count, cluster_count FROM jobs
    WHERE retry_of = d.job_id LIMIT 1) j ON true
WHERE d.id = $1;

-- name: dumps_page (relaxed)
-- $3: of these databases; null: of all. However rare a text is, it is looked for in no more than the newest 20,000 of the others.
SELECT d.*, j.id AS live_id, j.status AS live_status, j.turn_count AS live_turns, j.report AS live_report,
       CASE WHEN j.status = 'pending' AND j.failure_count + j.cluster_count > 0 THEN j.errors -> -1 ->> 'message' END
           AS live_problem,
       CASE j.status WHEN 'claimed' THEN j.saved ->> 'point_in_time' END AS frozen_at, paddock_now() AS now,
       CASE WHEN d.status IN ('failed', 'cancelled') THEN (
           SELECT h.report FROM job_history h WHERE h.id = d.job_id
               AND h.completed_at BETWEEN d.ended_at - interval '1 minute' AND d.ended_at + interval '1 minute' LIMIT 1)
       END AS last_report
FROM (SELECT * FROM (SELECT * FROM dumps
                     WHERE id < $1 AND status <> 'deleting' AND ($3::text[] IS NULL OR database = ANY ($3))
                       AND ($4::text IS NULL OR status = $4) AND ($5::text IS NULL OR owner = $5)
                     ORDER BY id DESC LIMIT CASE WHEN $6::text IS NULL THEN $2::bigint ELSE 20000 END) newest
      WHERE $6::text IS NULL OR position(lower($6) IN lower(concat_ws(' ', database, request ->> 'table',
            request ->> 'tables', file_name, schedule, error ->> 'message'))) > 0
      ORDER BY id DESC LIMIT $2) d
LEFT JOIN LATERAL (
    SELECT id, status, turn_count, report, saved, errors, failure_count, cluster_count FROM jobs WHERE id = d.job_id
    UNION ALL SELECT id, status, turn_count, report, saved, errors, failure_count, cluster_count FROM jobs
    WHERE retry_of = d.job_id LIMIT 1) j ON true
ORDER BY d.id DESC;

-- name: last_tables (relaxed)
-- How many tables the last whole dump of a database had.
SELECT table_count FROM dumps
WHERE database = $1 AND status = 'completed' AND NOT request ?| ARRAY['table', 'tables', 'excludeTables']
ORDER BY id DESC LIMIT 1;

-- name: dump_for_update (durable)
SELECT * FROM dumps WHERE id = $1 FOR UPDATE;

-- name: live_job (durable)
SELECT id FROM jobs WHERE id = $1 UNION ALL SELECT id FROM jobs WHERE retry_of = $1 LIMIT 1;

-- name: dump_deleting (durable)
UPDATE dumps SET status = 'deleting' WHERE id = $1;

-- name: removal_is_live (durable)
SELECT true FROM jobs WHERE kind = 'remove_dump' AND payload ->> 'dump_id' = $1 LIMIT 1;

-- name: drop_dump (durable)
DELETE FROM dumps WHERE id = $1 AND status = 'deleting';

-- name: lock_dump (durable)
SELECT id FROM dumps WHERE id = $1 FOR UPDATE;

-- name: dumps_to_expire (durable)
-- Those whose time is over, and completed ones of a schedule beyond those it keeps, which its newest dump says. A schedule's
-- name may have been somebody else's before: their dumps are not counted with its own. One that is being made again waits
-- for that end. $3: this one alone.
SELECT d.id, d.expires_at FROM dumps d
WHERE ($1::text IS NULL OR d.id > $1) AND ($3::text IS NULL OR d.id = $3)
  AND (d.expires_at <= paddock_now() AND d.status IN ('completed', 'failed', 'cancelled')
       OR d.schedule IS NOT NULL AND d.status = 'completed'
          AND (SELECT count(*) FROM dumps n
               WHERE n.schedule = d.schedule AND n.owner = d.owner AND n.status = 'completed' AND n.id > d.id)
              >= (SELECT n.keep_last FROM dumps n WHERE n.schedule = d.schedule AND n.owner = d.owner
                  ORDER BY n.id DESC LIMIT 1))
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = d.job_id) AND NOT EXISTS (SELECT FROM jobs j WHERE j.retry_of = d.job_id)
ORDER BY d.id LIMIT $2;

-- name: abandoned_dumps (relaxed)
-- Marked, and the job that takes their file away was given up.
SELECT d.id FROM dumps d
WHERE d.status = 'deleting' AND ($1::text IS NULL OR d.id > $1)
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.kind = 'remove_dump' AND j.payload ->> 'dump_id' = d.id)
ORDER BY d.id LIMIT $2;

-- name: dump_counts (relaxed)
SELECT status, count(*) AS n FROM dumps GROUP BY status;

-- name: unclaimed_dumps (durable)
-- Dumps that a schedule counted, and that no schedule counts any more: they go by their age, which begins now.
UPDATE dumps d SET expires_at = paddock_now() + d.kept
WHERE d.status = 'completed' AND d.expires_at IS NULL AND NOT EXISTS (
    SELECT FROM schedules s WHERE s.name = d.schedule AND s.kind = 'scheduled_dump'
      AND coalesce(s.payload ->> 'owner', s.owner) = d.owner
      AND coalesce(s.payload -> 'keepLast', s.payload -> 'keep_last', 'null') <> 'null');

-- name: settle_dumps (durable)
-- An end that is no completion stands even where its hook failed: its row then still waits for a job that is gone.
UPDATE dumps d SET status = 'failed', ended_at = paddock_now(), expires_at = paddock_now() + kept,
    error = jsonb_build_object('code', 'job_gone', 'message', 'The job of this dump ended without a word.')
WHERE d.status = 'pending'
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = d.job_id) AND NOT EXISTS (SELECT FROM jobs j WHERE j.retry_of = d.job_id)
RETURNING d.id;

-- name: known_dumps (relaxed)
-- What becomes of the folders of these: `busy` while a job is at work there; `key` names the file of those that have one.
SELECT d.id, d.key, d.status = 'deleting' AS going,
       EXISTS (SELECT FROM jobs j WHERE j.id = d.job_id) OR EXISTS (SELECT FROM jobs j WHERE j.retry_of = d.job_id) AS busy
FROM dumps d WHERE d.id = ANY ($1::text[]);

-- name: callback (relaxed)
SELECT id, owner, status, error, callback_url, extract(epoch FROM paddock_now())::bigint AS now FROM dumps WHERE id = $1;

-- name: callback_owner (durable)
SELECT owner FROM dumps WHERE id = $1 AND callback_url IS NOT NULL;
