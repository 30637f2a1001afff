-- name: insert_jobs (durable)
-- A lock conflict leaves its row out; the caller turns absence into a refusal. With $16 (a public submission) nothing is
-- inserted in drain mode. due_at is never in the past, so a claim cursor is never passed by a back-dated row.
-- $17 is a fresh secret, from which each id gets its random part: cheaper than asking the kernel for each row.
-- In the order of their locks: two batches that want the same two wait for each other one way round only.
-- With $18..$21 an idempotency key is kept with the jobs; when it is known already nothing is inserted. Whoever inserts
-- the same key at the same moment violates its primary key, and with it goes the whole statement.
-- $22 are the jobs' share keys, $23 what they are about.
WITH made AS (INSERT INTO jobs (id, kind, status, priority, due_at, owner, role, tags, payload, lock_key, group_id, retry_of,
                  parent_id, schedule, serial, traceparent, share_key, about, created_at)
SELECT paddock_id(paddock_now(), i.n, md5($17::text || i.n)::uuid), i.kind, 'pending', i.priority,
       greatest(i.run_at, paddock_now()) + greatest(i.delay, interval '0'),
       i.owner, i.role,
       CASE WHEN i.tags IS NULL THEN '{}' ELSE ARRAY(SELECT jsonb_array_elements_text(i.tags)) END,
       i.payload, i.lock_key, i.group_id, i.retry_of, i.parent_id, i.schedule, coalesce(i.serial, false), i.traceparent,
       i.share_key, i.about, paddock_now()
FROM unnest($1::text[], $2::jsonb[], $3::text[], $4::text[], $5::smallint[], $6::timestamptz[], $7::interval[],
            $8::jsonb[], $9::text[], $10::uuid[], $11::uuid[], $12::uuid[], $13::text[], $14::boolean[], $15::text[],
            $22::text[], $23::text[])
     WITH ORDINALITY AS i(kind, payload, owner, role, priority, run_at, delay, tags, lock_key, group_id, retry_of,
                          parent_id, schedule, serial, traceparent, share_key, about, n)
WHERE NOT ($16::boolean AND (SELECT paddock_draining()))
  AND NOT EXISTS (SELECT FROM idempotency_keys WHERE owner = $18 AND route = $19 AND key = $20)
ORDER BY i.lock_key
ON CONFLICT (lock_key) WHERE lock_key IS NOT NULL DO NOTHING
RETURNING id, kind, lane, due_at, payload, tags, created_at
), kept AS (
    INSERT INTO idempotency_keys (owner, route, key, body_hash, job_ids)
    SELECT $18::text, $19::text, $20::text, $21::bytea, array_agg(id ORDER BY id) FROM made
    HAVING $20 IS NOT NULL AND count(*) > 0
)
SELECT *, date_part('epoch', due_at - paddock_now()) AS due_in FROM made;

-- name: lock_holder (durable)
SELECT id, owner, lock_key FROM jobs WHERE lock_key = ANY ($1::text[]) AND id <> ALL ($2::uuid[]) ORDER BY id LIMIT 1;

-- name: drain_state (durable)
SELECT drained, drain_reason FROM service;

-- name: keep_idempotency_key (durable)
-- The loser of a race waits here for the winner's commit and gets no row: it reads the winner's in its next statement.
INSERT INTO idempotency_keys AS k (owner, route, key, body_hash) VALUES ($1, $2, $3, $4)
ON CONFLICT (owner, route, key) DO UPDATE
    SET body_hash = excluded.body_hash, job_ids = '{}', created_at = paddock_now()
    WHERE k.created_at < paddock_now() - interval '24 hours'
RETURNING true;

-- name: read_idempotency_key (durable)
SELECT body_hash, job_ids FROM idempotency_keys WHERE owner = $1 AND route = $2 AND key = $3;

-- name: fill_idempotency_key (durable)
UPDATE idempotency_keys SET job_ids = $4 WHERE owner = $1 AND route = $2 AND key = $3;
