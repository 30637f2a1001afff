-- name: settings (relaxed)
SELECT name, value, updated_at, updated_by FROM settings;

-- name: settings_for_update (durable)
SELECT name, value FROM settings WHERE name = ANY ($1::text[]) ORDER BY name FOR UPDATE;

-- name: put_setting (durable)
INSERT INTO settings (name, value, updated_by) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = paddock_now(), updated_by = excluded.updated_by;

-- name: drop_setting (durable)
DELETE FROM settings WHERE name = $1;
