-- name: merge_table (durable)
-- One line of a look. A table that could not be loaded keeps what an earlier look saw of it, and says why.
INSERT INTO lake_tables AS t (catalog, namespace, name, uuid, location, snapshot_id, figures, issues, policy, recommended, health,
                              problem, round)
VALUES ($1, $2, $3, $4, $5, $6, coalesce($7::jsonb, '{}'), coalesce($8::jsonb, '[]'), coalesce($9::jsonb, '{}'),
        coalesce($10::jsonb, '[]'), coalesce($11, 'unknown'), $12, $13)
ON CONFLICT (catalog, namespace, name) DO UPDATE SET
    uuid = coalesce(excluded.uuid, t.uuid),
    location = coalesce(excluded.location, t.location),
    snapshot_id = CASE WHEN excluded.problem IS NULL THEN excluded.snapshot_id ELSE t.snapshot_id END,
    figures = CASE WHEN excluded.problem IS NULL THEN excluded.figures ELSE t.figures END,
    issues = CASE WHEN excluded.problem IS NULL THEN excluded.issues ELSE t.issues END,
    policy = CASE WHEN excluded.problem IS NULL THEN excluded.policy ELSE t.policy END,
    recommended = CASE WHEN excluded.problem IS NULL THEN excluded.recommended ELSE t.recommended END,
    health = CASE WHEN excluded.problem IS NULL THEN excluded.health ELSE 'unknown' END,
    problem = excluded.problem,
    round = coalesce(excluded.round, t.round),
    -- Of another table that has the name now nobody has maintained anything yet.
    maintained_at = CASE WHEN excluded.uuid IS NULL OR excluded.uuid = t.uuid THEN t.maintained_at END,
    failures = CASE WHEN excluded.uuid IS NULL OR excluded.uuid = t.uuid THEN t.failures ELSE 0 END,
    orphans_removed_at = CASE WHEN excluded.uuid IS NULL OR excluded.uuid = t.uuid THEN t.orphans_removed_at END,
    seen_at = paddock_now();

-- name: drop_table (durable)
DELETE FROM lake_tables WHERE catalog = $1 AND namespace = $2 AND name = $3;

-- name: drop_unseen (durable)
-- What a whole round did not see, and nobody looked at while it went on, is gone.
DELETE FROM lake_tables
WHERE catalog = $1 AND round IS DISTINCT FROM $2::text
  AND seen_at < coalesce((SELECT created_at FROM jobs WHERE id = ($2::text)::uuid), (SELECT created_at FROM job_history WHERE id = ($2::text)::uuid), paddock_now());

-- name: round_ended (durable)
INSERT INTO lake_catalogs (catalog, seen_at, tables)
VALUES ($1, paddock_now(), (SELECT count(*) FROM lake_tables WHERE catalog = $1))
ON CONFLICT (catalog) DO UPDATE SET seen_at = excluded.seen_at, tables = excluded.tables, problem = NULL, problem_at = NULL;

-- name: round_failed (durable)
INSERT INTO lake_catalogs (catalog, problem, problem_at) VALUES ($1, $2, paddock_now())
ON CONFLICT (catalog) DO UPDATE SET problem = excluded.problem, problem_at = excluded.problem_at;

-- name: catalogs (relaxed)
SELECT catalog, seen_at, tables, problem, problem_at FROM lake_catalogs;

-- name: healths (relaxed)
-- $1: of these catalogs; $2: of these databases, as catalog.db; either is enough. Null in both: of all.
SELECT catalog, health, count(*) AS tables FROM lake_tables
WHERE ($1::text[] IS NULL AND $2::text[] IS NULL) OR catalog = ANY ($1)
   OR catalog || '.' || replace(namespace, E'\x1f', '.') = ANY ($2)
GROUP BY catalog, health;

-- name: drop_unconfigured (durable)
-- Tables of catalogs that are configured no more. A week later: a mistake in a configuration is mended by then.
WITH gone AS (
    DELETE FROM lake_tables WHERE catalog <> ALL ($1::text[]) AND seen_at < paddock_now() - interval '7 days')
DELETE FROM lake_catalogs
WHERE catalog <> ALL ($1::text[]) AND coalesce(greatest(seen_at, problem_at), '-infinity') < paddock_now() - interval '7 days';

-- name: table (relaxed)
SELECT t.*, j.id AS live_id, j.status AS live_status, j.owner AS live_owner FROM lake_tables t
LEFT JOIN jobs j ON j.lock_key = 'table:' || t.uuid
WHERE t.catalog = $1 AND t.namespace = $2 AND t.name = $3;

-- name: tables_page (relaxed)
-- $3: of these catalogs; $4: of these databases, as catalog.db; either is enough. Null in both: of all.
SELECT t.*, j.id AS live_id, j.status AS live_status, j.owner AS live_owner FROM lake_tables t
LEFT JOIN jobs j ON j.lock_key = 'table:' || t.uuid
WHERE (t.catalog, t.namespace, t.name) > ($1, $2, $3)
  AND (($4::text[] IS NULL AND $5::text[] IS NULL) OR t.catalog = ANY ($4)
       OR t.catalog || '.' || replace(t.namespace, E'\x1f', '.') = ANY ($5))
  AND ($6::text IS NULL OR t.catalog = $6)
  AND ($7::text IS NULL OR replace(t.namespace, E'\x1f', '.') = $7)
  AND ($8::text IS NULL OR t.health = $8)
  AND ($9::text IS NULL OR position(lower($9) IN lower(replace(t.namespace, E'\x1f', '.') || '.' || t.name)) > 0)
ORDER BY t.catalog, t.namespace, t.name LIMIT $10;

-- name: locations_near (relaxed)
-- Of other known tables: inside the folder $4 or around it, by paths without scheme and bucket. What is written with % may be any
-- place; who asks looks closer.
SELECT location FROM (
    SELECT location, regexp_replace(
        '/' || regexp_replace(location, '^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?', '') || '/', '/{2,}', '/', 'g') AS folder
    FROM lake_tables
    WHERE location IS NOT NULL AND NOT (catalog = $1 AND namespace = $2 AND name = $3)) AS others
WHERE position('%' IN location) > 0 OR starts_with(folder, $4) OR starts_with($4, folder)
ORDER BY location;

-- name: insert_action (durable)
INSERT INTO table_actions (job_id, catalog, namespace, name, uuid, action, outcome, message, error, figures, details, alarms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (job_id, action) DO NOTHING RETURNING id;

-- name: own_snapshots (relaxed)
-- What our actions of the last days made, by us or by an engine that we told to. What may be that engine's work, or somebody's
-- who wrote at the same time, is not held against the table.
SELECT DISTINCT s.id FROM table_actions a
CROSS JOIN LATERAL (
    SELECT jsonb_array_elements_text(
        CASE WHEN jsonb_typeof(a.details -> 'snapshots') = 'array' THEN a.details -> 'snapshots' ELSE '[]' END) AS id
    UNION ALL
    SELECT e ->> 'snapshot_id' FROM jsonb_array_elements(
        CASE WHEN jsonb_typeof(a.details -> 'since') = 'array' THEN a.details -> 'since' ELSE '[]' END) AS e
    WHERE e ->> 'made_by' = 'unknown' AND e ->> 'operation' = 'replace') AS s
WHERE a.uuid = $1 AND a.at > paddock_now() - interval '8 days';

-- name: table_maintained (durable)
UPDATE lake_tables SET maintained_at = paddock_now(), maintained_job = $4, failures = CASE WHEN $5 THEN 0 ELSE failures + 1 END,
    orphans_removed_at = CASE WHEN $6 THEN paddock_now() ELSE orphans_removed_at END
WHERE catalog = $1 AND namespace = $2 AND name = $3 AND uuid = $7;

-- name: history (relaxed)
SELECT * FROM table_actions WHERE catalog = $1 AND namespace = $2 AND name = $3 AND id < $4 ORDER BY id DESC LIMIT $5;

-- name: drop_old_actions (durable)
DELETE FROM table_actions WHERE at < paddock_now() - interval '90 days';

-- name: live_maintenance (relaxed)
SELECT kind, count(*) AS n FROM jobs WHERE kind = ANY ($1::text[]) AND cleanup_of IS NULL GROUP BY kind;

-- name: live_rounds (relaxed)
SELECT DISTINCT kind FROM jobs WHERE kind = ANY ($1::text[]) AND payload -> 'table' IS NULL;

-- name: of_catalog (relaxed)
SELECT t.*, j.id AS live_id, j.status AS live_status, j.owner AS live_owner FROM lake_tables t
LEFT JOIN jobs j ON j.lock_key = 'table:' || t.uuid
WHERE t.catalog = $1 AND (t.namespace, t.name) > ($2, $3) ORDER BY t.namespace, t.name LIMIT 500;

-- name: clock (relaxed)
SELECT paddock_now();
