-- name: insert_token (durable)
-- A secret that is already kept stays as it is: `paddock up` offers the one in its file at every start.
INSERT INTO tokens (name, owner, role, secret_hash, kinds, grants, expires_at, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (secret_hash) DO NOTHING
RETURNING *;

-- name: add_grants (durable)
UPDATE tokens SET grants = grants || $2::jsonb WHERE secret_hash = $1 AND NOT grants @> $2::jsonb;

-- name: token_by_secret (relaxed)
SELECT *, last_used_at IS NULL OR last_used_at < paddock_now() - interval '1 minute' AS touch_due
FROM tokens
WHERE secret_hash = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > paddock_now());

-- name: token_is_good (relaxed)
SELECT true FROM tokens
WHERE id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > paddock_now());

-- name: token_state (relaxed)
-- Also of one that is no longer good: whoever has the secret may learn why it is refused.
SELECT role, revoked_at, expires_at, coalesce(expires_at <= paddock_now(), false) AS expired
FROM tokens WHERE secret_hash = $1;

-- name: tokens_of_owner (durable)
-- Of people, with those that are no longer good: they say whether their owner ever was an analyst.
SELECT *, revoked_at IS NULL AND (expires_at IS NULL OR expires_at > paddock_now()) AS good
FROM tokens WHERE owner = $1 AND role <> 'worker' ORDER BY created_at DESC, id DESC;

-- name: touch_token (relaxed)
-- Guarded again here: replicas that looked at the same moment write once.
UPDATE tokens SET last_used_at = paddock_now()
WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < paddock_now() - interval '1 minute');

-- name: list_tokens (relaxed)
SELECT * FROM tokens WHERE ($1::uuid IS NULL OR (created_at, id) < (SELECT created_at, id FROM tokens WHERE id = $1))
ORDER BY created_at DESC, id DESC LIMIT $2;

-- name: lock_admin_tokens (durable)
-- Two admins who revoke each other's token at once must not both succeed.
SELECT id FROM tokens
WHERE role = 'admin' AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > paddock_now())
ORDER BY id FOR UPDATE;

-- name: revoke_token (durable)
UPDATE tokens SET revoked_at = coalesce(revoked_at, paddock_now()), revoked_by = coalesce(revoked_by, $2)
WHERE id = $1 RETURNING *;

-- name: tokens_of_files (durable)
-- Those that $1 made and that are good now. `settled`: each control plane has had the time to see its file, or that it is gone.
SELECT id, name, secret_hash, created_at, greatest(created_at, restored_at) <= paddock_now() - interval '10 minutes' AS settled, expires_at
FROM tokens
WHERE created_by = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > paddock_now());

-- name: revive_token (durable)
-- What a person revoked stays revoked.
UPDATE tokens SET revoked_at = NULL, revoked_by = NULL, expires_at = NULL, restored_at = paddock_now()
WHERE secret_hash = $1 AND created_by = $2 AND (revoked_at IS NULL OR revoked_by = $2)
  AND (revoked_at IS NOT NULL OR expires_at IS NOT NULL)
RETURNING id;

-- name: replace_token (durable)
UPDATE tokens SET expires_at = paddock_now() + interval '10 minutes' WHERE id = $1 AND expires_at IS NULL RETURNING id;

-- name: token_made_as (durable)
SELECT name, role FROM tokens WHERE secret_hash = $1;

-- name: end_web_sessions_of_token (durable)
DELETE FROM web_sessions WHERE token_id = $1;

-- name: end_links_of_token (durable)
DELETE FROM sign_in_links WHERE token_id = $1;

-- name: insert_link (durable)
INSERT INTO sign_in_links (code_hash, token_id, expires_at) VALUES ($1, $2, paddock_now() + $3);

-- name: take_link (durable)
-- Single use: of two at once the second waits for the row and then finds it used.
UPDATE sign_in_links SET used_at = paddock_now()
WHERE code_hash = $1 AND used_at IS NULL AND expires_at > paddock_now() RETURNING token_id;

-- name: link_state (relaxed)
SELECT l.used_at, l.expires_at, l.expires_at <= paddock_now() AS expired,
       coalesce(t.expires_at <= paddock_now(), false) AS token_expired, t.expires_at AS token_expires_at
FROM sign_in_links l JOIN tokens t ON t.id = l.token_id WHERE l.code_hash = $1;

-- name: prune_links (durable)
DELETE FROM sign_in_links WHERE expires_at <= paddock_now() - interval '1 day';

-- name: prune_web_sessions (durable)
DELETE FROM web_sessions WHERE expires_at <= paddock_now();

-- name: insert_web_session (durable)
-- Only for a token that is good now, and never beyond its expiry.
INSERT INTO web_sessions (id_hash, token_id, csrf, expires_at)
SELECT $1, t.id, $3, least(paddock_now() + $4, t.expires_at)
FROM tokens t
WHERE t.id = $2 AND t.role <> 'worker' AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > paddock_now())
RETURNING expires_at;

-- name: token_by_web_session (relaxed)
SELECT t.*, w.csrf, t.last_used_at IS NULL OR t.last_used_at < paddock_now() - interval '1 minute' AS touch_due
FROM web_sessions w JOIN tokens t ON t.id = w.token_id
WHERE w.id_hash = $1 AND w.expires_at > paddock_now()
  AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > paddock_now());

-- name: end_web_session (durable)
DELETE FROM web_sessions WHERE id_hash = $1;
