-- name: event_to_deliver (relaxed)
-- `now` is the database's: a receiver compares it with its own clock, and tests set it.
SELECT e.id, e.type, e.subject, e.version, e.at, e.data, w.url, w.active,
       extract(epoch FROM paddock_now())::bigint AS now
FROM events e LEFT JOIN webhooks w ON w.id = $2
WHERE e.id = $1;

-- name: signing_secret (durable)
SELECT secret FROM webhooks WHERE id = $1 AND active;

-- name: deactivate_webhook (durable)
UPDATE webhooks SET active = false WHERE id = $1 AND active;

-- name: make_owner_key (durable)
INSERT INTO webhook_keys (owner, secret) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: owner_key (durable)
SELECT secret, created_at FROM webhook_keys WHERE owner = $1;

-- name: rotate_owner_key (durable)
INSERT INTO webhook_keys (owner, secret) VALUES ($1, $2)
ON CONFLICT (owner) DO UPDATE SET secret = excluded.secret, created_at = paddock_now()
RETURNING secret, created_at;
