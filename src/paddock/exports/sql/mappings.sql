-- name: new_id (durable)
SELECT paddock_id(paddock_now());

-- name: insert_mapping (durable)
-- No row: the owner has a mapping of this name.
INSERT INTO mappings (id, owner, name, description, version, ttl) VALUES ($1, $2, $3, $4, 1, $5)
ON CONFLICT (owner, lower(name)) DO NOTHING RETURNING id;

-- name: insert_version (durable)
INSERT INTO mapping_versions (mapping_id, version, definition, change_description, created_by)
VALUES ($1, $2, $3, $4, $5);

-- name: mapping_named (durable)
SELECT id FROM mappings WHERE owner = $1 AND lower(name) = lower($2);

-- name: change_mapping (durable)
UPDATE mappings SET name = $2, description = $3, ttl = $4, version = $5, updated_at = paddock_now() WHERE id = $1;

-- name: mapping_for_update (durable)
SELECT * FROM mappings WHERE id = $1 FOR UPDATE;

-- name: mapping_version_for_share (durable)
-- Whoever makes a snapshot holds the mapping: it cannot be deleted under it.
SELECT m.id, m.owner, m.name, v.version, v.definition
FROM mappings m JOIN mapping_versions v ON v.mapping_id = m.id
WHERE m.id = $1 AND v.version = coalesce($2::int, m.version) FOR SHARE OF m;

-- name: definition (durable)
SELECT definition FROM mapping_versions WHERE mapping_id = $1 AND version = $2;

-- name: mapping (relaxed)
SELECT m.id, m.owner, m.name, m.description, m.version AS latest, m.ttl, m.created_at, m.updated_at,
       v.version, v.definition, v.change_description, v.created_by, v.created_at AS version_created_at
FROM mappings m JOIN mapping_versions v ON v.mapping_id = m.id
WHERE m.id = $1 AND v.version = coalesce($2::int, m.version);

-- name: mappings_page (relaxed)
SELECT id, owner, name, description, version, ttl, created_at, updated_at FROM mappings
WHERE id < $1 AND ($3::text IS NULL OR lower(name) = lower($3))
  AND ($4::text IS NULL OR position(lower($4) IN lower(name || E'\n' || description)) > 0)
ORDER BY id DESC LIMIT $2;

-- name: mappings_page_of_owner (relaxed)
SELECT id, owner, name, description, version, ttl, created_at, updated_at FROM mappings
WHERE owner = $5 AND id < $1 AND ($3::text IS NULL OR lower(name) = lower($3))
  AND ($4::text IS NULL OR position(lower($4) IN lower(name || E'\n' || description)) > 0)
ORDER BY owner DESC, id DESC LIMIT $2;

-- name: versions_page (relaxed)
SELECT version, change_description, created_by, created_at,
       jsonb_array_length(definition -> 'nodes') AS nodes, jsonb_array_length(definition -> 'edges') AS edges
FROM mapping_versions WHERE mapping_id = $1 AND version < $2 ORDER BY version DESC LIMIT $3;

-- name: snapshots_of_mapping (durable)
-- Those that keep it alive.
SELECT id, owner, name FROM snapshots WHERE mapping_id = $1 AND status <> 'deleting' ORDER BY id LIMIT $2;

-- name: delete_mapping (durable)
DELETE FROM mappings WHERE id = $1;

-- name: expired_mappings (relaxed)
SELECT m.id, m.created_at + m.ttl AS expires_at FROM mappings m
WHERE m.ttl IS NOT NULL AND paddock_now() >= m.created_at + m.ttl AND ($1::uuid IS NULL OR m.id > $1)
  AND NOT EXISTS (SELECT FROM snapshots s WHERE s.mapping_id = m.id AND s.status <> 'deleting')
ORDER BY m.id LIMIT $2;

-- name: expired_mapping_for_update (durable)
SELECT id, name FROM mappings WHERE id = $1 AND ttl IS NOT NULL AND paddock_now() >= created_at + ttl FOR UPDATE;
