-- name: scan (relaxed)
-- One step along an index, newest or oldest first, over live and ended jobs together. One snapshot: a job that ends
-- meanwhile is in exactly one of the two tables, so that no page misses or doubles it.
-- $1 and $2: the ids between which it looks, both excluded. Each walk reads at most {step} rows in id order, the first {step}
-- of them all are kept, and only then it looks at the rest of the filter: the cost of a step does not depend on how rare a
-- match is. Where the primary key is walked, the far bound is part of that rest: bounded on both sides it is estimated as
-- tiny, and read whole and sorted.
-- `edge` is the last id looked at; `looked` < {step} means that nothing is left.
WITH scanned AS MATERIALIZED (
    SELECT * FROM ({sources}) source ORDER BY id {order} LIMIT {step}
), matched AS MATERIALIZED (
    SELECT id, completed_at FROM scanned s
    WHERE s.id > $1 AND s.id < $2
      AND ($3::text IS NULL OR s.kind = $3)
      AND ($4::text[] IS NULL OR s.status = ANY ($4))
      AND ($5::text IS NULL OR s.owner = $5)
      AND ($6::uuid IS NULL OR s.group_id = $6)
      AND ($7::text IS NULL OR s.claimed_by = $7)
      AND ($8::text IS NULL OR $8 = ANY (s.tags))
      AND ($9::text IS NULL OR s.error_code = $9)
      AND ($10::text IS NULL OR strpos(lower(s.error_message), lower($10)) > 0 OR strpos(lower(s.error_code), lower($10)) > 0
           OR strpos(lower(s.about), lower($10)) > 0)
      AND ($11::text IS NULL OR s.schedule = $11)
      AND ($12::uuid[] IS NULL OR s.id = ANY ($12))
      AND ($13 OR s.kind <> ALL (ARRAY(SELECT name FROM kinds WHERE housekeeping)))
      AND ($15 OR s.cleanup_of IS NULL)
    ORDER BY id {order} LIMIT $14
), edge AS (
    SELECT (SELECT count(*) FROM scanned) AS looked,
           (SELECT id FROM scanned ORDER BY id {reverse} LIMIT 1) AS edge
)
{output}

-- name: whole_rows (relaxed)
-- The ids come as an array: a join to `matched` may be planned as a hash over the whole table.
SELECT edge.looked, edge.edge, r.* FROM edge LEFT JOIN (
    SELECT {live_row} FROM jobs j WHERE j.id = ANY (ARRAY(SELECT id FROM matched WHERE completed_at IS NULL))
    UNION ALL
    SELECT {ended_row} FROM job_history j WHERE j.id = ANY (ARRAY(SELECT id FROM matched WHERE completed_at IS NOT NULL))
) r ON true ORDER BY r.id {order}

-- name: only_ids (relaxed)
SELECT edge.looked, edge.edge, m.id FROM edge LEFT JOIN matched m ON true ORDER BY m.id {order}

-- name: only_count (relaxed)
SELECT edge.looked, edge.edge, (SELECT count(*) FROM matched) AS n FROM edge

-- name: jobs_by_id (relaxed)
SELECT {live_row} FROM jobs j WHERE j.id = ANY ($1::uuid[])
UNION ALL
SELECT {ended_row} FROM job_history j WHERE j.id = ANY ($1::uuid[])

-- name: placed (relaxed)
SELECT id, owner, kind, status, group_id FROM jobs WHERE id = ANY ($1::uuid[])
UNION ALL
SELECT id, owner, kind, status, group_id FROM job_history WHERE id = ANY ($1::uuid[])

-- name: placed_of (relaxed)
SELECT id, owner, kind, status, group_id FROM jobs
WHERE id = ANY ($1::uuid[]) AND (owner = ANY ($2::text[]) OR kind = ANY ($3::text[]) OR group_id = ANY ($4::uuid[]))
UNION ALL
SELECT id, owner, kind, status, group_id FROM job_history
WHERE id = ANY ($1::uuid[]) AND (owner = ANY ($2::text[]) OR kind = ANY ($3::text[]) OR group_id = ANY ($4::uuid[]))

-- name: live_row (relaxed)
j.id, j.kind, j.status, j.priority, j.owner, j.role, j.tags, j.payload, j.saved, j.report, NULL::jsonb AS result,
j.error_code, j.error_message, j.errors, CASE WHEN isfinite(j.due_at) THEN j.due_at END AS due_at,
CASE WHEN j.attempt_id IS NOT NULL THEN (SELECT s.expires_at FROM sessions s WHERE s.id = j.session_id)
     WHEN isfinite(j.due_at) THEN j.due_at END AS visible_at,
j.attempt_id, j.ended_by, j.session_id, j.claimed_by, j.claimed_at, j.turn_count, j.failure_count, j.cluster_count,
j.lost_count, j.waiting_on, j.lock_key, j.group_id, j.retry_of, NULL::uuid AS retried_by, j.cleanup_of, j.schedule,
j.created_at, j.started_at, j.submitted_at, NULL::timestamptz AS completed_at, j.run_seconds, j.wait_seconds, j.about

-- name: ended_row (relaxed)
j.id, j.kind, j.status, j.priority, j.owner, j.role, j.tags, j.payload, j.saved, j.report, j.result,
j.error_code, j.error_message, j.errors, NULL::timestamptz AS due_at,
NULL::timestamptz AS visible_at,
NULL::uuid AS attempt_id, j.ended_by, j.session_id, j.claimed_by, j.claimed_at, j.turn_count, j.failure_count, j.cluster_count,
j.lost_count, j.waiting_on, j.lock_key, j.group_id, j.retry_of,
(SELECT r.id FROM (SELECT id FROM jobs WHERE retry_of = j.id UNION ALL SELECT id FROM job_history WHERE retry_of = j.id) r
 ORDER BY r.id LIMIT 1) AS retried_by, j.cleanup_of, j.schedule,
j.created_at, j.started_at, j.submitted_at, j.completed_at, j.run_seconds, j.wait_seconds, j.about

-- name: result_figures (relaxed)
SELECT jsonb_object_agg(f.key, f.value) FROM jsonb_each(CASE jsonb_typeof(j.result) WHEN 'object' THEN j.result END) f
WHERE f.key IN ({names}) AND jsonb_typeof(f.value) = 'number'

-- name: looked_at (relaxed)
j.id, j.kind, j.status, j.owner, j.group_id, j.claimed_by, j.tags, j.error_code, j.error_message, j.schedule, j.cleanup_of,
j.about

-- name: along (relaxed)
-- Walks the primary key.
(SELECT {columns} FROM {table} j WHERE {bound} ORDER BY j.id {order} LIMIT {step})

-- name: along_guarded (relaxed)
-- Walks an index on (id) that holds only the rows of its guard.
(SELECT {columns} FROM {table} j WHERE {guard} AND {bound} ORDER BY j.id {order} LIMIT {step})

-- name: along_owner_guarded (relaxed)
-- The same on (owner, id), within one owner.
(SELECT * FROM (SELECT {columns} FROM {table} j
    WHERE {guard} AND {key_bound} ORDER BY j.owner {order}, j.id {order} LIMIT {step}) j
 WHERE j.owner = $5)

-- name: along_key (relaxed)
-- Walks an index on ({key}, id) within one value of its key. Not `key = value`: for a value that it takes for frequent
-- the planner would rather walk the primary key and filter, and read the whole table for one that is rare.
-- The row comparison is a bound of the index, and the order by both columns is one that no other index has.
-- Where the value ends is seen only afterwards: with a bound on that side too it would expect few rows, and read them all.
(SELECT * FROM (SELECT {columns} FROM {table} j
    WHERE j.{key} IS NOT NULL AND {key_bound} ORDER BY j.{key} {order}, j.id {order} LIMIT {step}) j
 WHERE j.{key} = {value})

-- name: along_keys (relaxed)
-- The same within one value of each of several keys, and it stops where the values end. No other index of the table begins
-- with the first of them: the planner looks at no more of a row comparison, and would take either.
(SELECT {columns} FROM {table} j WHERE {between} ORDER BY {ordered} LIMIT {step})

-- name: along_sorts (relaxed)
-- Walks an index on ({keys}, kind, status, id) in each kind and status that a match can have. Any of them may have all of the
-- next {step} rows, so each reads as many: the more walks, the shorter a step, or it would read too much.
(SELECT w.* FROM {sorts} k CROSS JOIN unnest($4::text[]) AS u(status) CROSS JOIN LATERAL (
    SELECT {columns} FROM {table} j WHERE {between} ORDER BY {ordered} LIMIT {step}) w
 WHERE u.status IN ('completed', 'failed', 'cancelled')
   AND ($13 OR k.kind <> ALL (ARRAY(SELECT name FROM kinds WHERE housekeeping))))

-- name: sorts_there_are (relaxed)
-- The kinds that stand in such an index: it looks for the least, then each time for the next.
(WITH RECURSIVE sorts AS (
    SELECT j.* FROM (SELECT {heads} FROM {table} j WHERE {keyed} AND ({heads}) >= ({least}) ORDER BY {heads} LIMIT 1) j WHERE {same}
    UNION ALL
    SELECT j.* FROM sorts s CROSS JOIN LATERAL (
        SELECT {heads} FROM {table} j WHERE {keyed} AND ({heads}) > ({following}) ORDER BY {heads} LIMIT 1) j WHERE {same}
 ) SELECT kind FROM sorts)

-- name: count_kinds (relaxed)
SELECT count(*) FROM {sorts} k

-- name: tagged (relaxed)
-- The ids come from the rows of a tag; what else is looked at, from the jobs themselves. One that upkeep has removed
-- meanwhile counts as looked at and matches nothing.
(SELECT t.id, {others}, t.completed_at
 FROM (SELECT * FROM {walk} t ORDER BY t.id {order} LIMIT {step}) t
 LEFT JOIN LATERAL ({jobs} OFFSET 0) j ON true)

-- name: jobs_of_job_tags (relaxed)
SELECT * FROM jobs l WHERE l.id = t.id

-- name: jobs_of_job_history_tags (relaxed)
SELECT * FROM job_history h WHERE h.id = t.id AND h.completed_at = t.completed_at

-- name: among (relaxed)
-- Reads a small set whole (named jobs, those that run now) and puts it in order.
(SELECT * FROM (SELECT {columns} FROM {table} j WHERE {guard} OFFSET 0) j WHERE {bound})

-- name: pending_of_kind (relaxed)
-- Whether the live jobs of a kind are few enough to be read whole. Stops at the first one too many.
SELECT count(*) FROM (SELECT FROM jobs WHERE kind = $1 AND attempt_id IS NULL LIMIT $2) few

-- name: clock (relaxed)
SELECT paddock_now()
