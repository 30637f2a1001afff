-- name: insert_group (durable)
INSERT INTO groups (id, kind, owner, data) VALUES (paddock_id(paddock_now()), $1, $2, $3) RETURNING id;

-- name: grow_group (durable)
UPDATE groups SET open = open + $2, total = total + $2 WHERE id = $1 AND ended_at IS NULL RETURNING id;

-- name: seal_group (durable)
UPDATE groups SET sealed = true, ended_at = CASE WHEN open = 0 THEN paddock_now() END, hook_due = (open = 0)
WHERE id = $1 AND NOT sealed RETURNING *;

-- name: shrink_group (durable)
-- `open - n ... RETURNING open` waits for the other last job's commit and then sees it; counting jobs here would not.
UPDATE groups
SET open = open - $2, failed = failed + $3, cancelled = cancelled + $4,
    ended_at = CASE WHEN sealed AND open - $2 = 0 THEN paddock_now() END,
    hook_due = sealed AND open - $2 = 0
WHERE id = $1 RETURNING *;

-- name: reopen_group (durable)
UPDATE groups
SET open = open + 1, failed = failed - $2, cancelled = cancelled - $3, ended_at = NULL, hook_due = false
WHERE id = $1 AND NOT final RETURNING id;

-- name: group_hook_done (durable)
UPDATE groups SET hook_due = false WHERE id = $1;

-- name: groups_with_hook_due (durable)
SELECT * FROM groups WHERE hook_due AND id > $1 AND ($2::text IS NULL OR kind = $2) ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED;

-- name: group (relaxed)
SELECT * FROM groups WHERE id = $1;

-- name: open_groups (relaxed)
SELECT * FROM groups WHERE ended_at IS NULL AND id < $1 ORDER BY id DESC LIMIT $2;

-- name: open_groups_of_owner (relaxed)
SELECT * FROM groups WHERE ended_at IS NULL AND owner = $3 AND id < $1 ORDER BY owner DESC, id DESC LIMIT $2;

-- name: ended_groups (relaxed)
SELECT * FROM groups WHERE ended_at IS NOT NULL AND (ended_at, id) < ($1::timestamptz, $2::uuid)
ORDER BY ended_at DESC, id DESC LIMIT $3;

-- name: ended_groups_of_owner (relaxed)
SELECT * FROM groups WHERE ended_at IS NOT NULL AND owner = $4 AND (ended_at, id) < ($1::timestamptz, $2::uuid)
ORDER BY owner DESC, ended_at DESC, id DESC LIMIT $3;

-- name: live_of_group (relaxed)
-- Stops at the first one too many.
SELECT status, count(*) AS n FROM (SELECT status FROM jobs WHERE group_id = $1 AND cleanup_of IS NULL LIMIT $2) few
GROUP BY status;
