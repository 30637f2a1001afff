-- name: installation (durable)
SELECT id, namespace, namespace_uid, home, bound_at, bound_by FROM installation;

-- name: bind_first (durable)
-- Several replicas may start at once: one of them binds.
INSERT INTO installation (namespace, namespace_uid, home, bound_by) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- name: rename_home (durable)
-- Guard: the home that was seen.
UPDATE installation SET home = $2 WHERE home = $1;

-- name: lock_installation (durable)
SELECT id, namespace, namespace_uid, home, bound_at, bound_by FROM installation FOR UPDATE;

-- name: bind_anew (durable)
-- With $5 under a new id: what carries the old one is left alone from here on.
UPDATE installation SET namespace = $1, namespace_uid = $2, home = $3, bound_by = $4, bound_at = paddock_now(),
    id = CASE WHEN $5 THEN gen_random_uuid() ELSE id END
RETURNING id, namespace, namespace_uid, home, bound_at, bound_by;
