-- name: now (relaxed)
SELECT paddock_now();

-- name: engines (relaxed)
SELECT engine, refreshed_at, began_at, status, note, role, skip, paddock_now() AS now FROM schema_engines;

-- name: read_as (durable)
SELECT role, skip FROM schema_engines WHERE engine = $1 FOR UPDATE;

-- name: begin_reading_as (durable)
INSERT INTO schema_engines AS e (engine, role, skip) VALUES ($1, $2, $3)
ON CONFLICT (engine) DO UPDATE SET role = $2, skip = $3, refreshed_at = NULL, began_at = NULL;

-- name: engine_ended (durable)
INSERT INTO schema_engines AS e (engine, refreshed_at, began_at, status, note)
VALUES ($1, CASE WHEN $2 = 'success' THEN paddock_now() END, CASE WHEN $2 = 'success' THEN $4::timestamptz END, $2, $3)
ON CONFLICT (engine) DO UPDATE
SET refreshed_at = coalesce(excluded.refreshed_at, e.refreshed_at), began_at = coalesce(excluded.began_at, e.began_at),
    status = $2, note = $3;

-- name: drop_engines (durable)
-- Those that are configured no more.
DELETE FROM schema_engines WHERE engine <> ALL ($1::text[]) RETURNING engine;

-- name: drop_catalogs_of_engines (durable)
DELETE FROM schema_catalogs WHERE engine = ANY ($1::text[]);

-- name: drop_schemas_of_engines (durable)
DELETE FROM schema_schemas WHERE engine = ANY ($1::text[]);

-- name: drop_tables_of_engines (durable)
DELETE FROM schema_tables WHERE engine = ANY ($1::text[]);

-- name: see_catalog (durable)
-- One whose schemas could not be listed keeps what is known of it and notes the error. Once for each reading.
INSERT INTO schema_catalogs AS c (engine, catalog, seen_by, refreshed_at, error)
VALUES ($1, $2, $3, CASE WHEN $4::text IS NULL THEN paddock_now() END, $4)
ON CONFLICT (engine, catalog) DO UPDATE
SET seen_by = $3, refreshed_at = coalesce(excluded.refreshed_at, c.refreshed_at), error = $4
WHERE c.seen_by <> $3;

-- name: see_schema (durable)
-- A schema that failed keeps its entries and notes its error.
INSERT INTO schema_schemas AS s (engine, catalog, schema, seen_by, refreshed_at, error)
VALUES ($1, $2, $3, $4, CASE WHEN $5::text IS NULL THEN paddock_now() END, $5)
ON CONFLICT (engine, catalog, schema) DO UPDATE
SET seen_by = $4, refreshed_at = coalesce(excluded.refreshed_at, s.refreshed_at), error = $5;

-- name: fail_schemas_of_catalog (durable)
UPDATE schema_schemas SET seen_by = $3, error = $4 WHERE engine = $1 AND catalog = $2;

-- name: drop_gone_catalogs (durable)
DELETE FROM schema_catalogs WHERE engine = $1 AND seen_by <> $2;

-- name: gone_schemas (durable)
SELECT catalog, schema FROM schema_schemas WHERE engine = $1 AND seen_by <> $2 ORDER BY catalog, schema LIMIT 100;

-- name: drop_schema (durable)
DELETE FROM schema_schemas WHERE engine = $1 AND catalog = $2 AND schema = $3 AND seen_by <> $4;

-- name: drop_tables_of_schema (durable)
DELETE FROM schema_tables WHERE engine = $1 AND catalog = $2 AND schema = $3;

-- name: digests (durable)
-- Of the range of names that a page takes the place of.
SELECT name, digest FROM schema_tables
WHERE engine = $1 AND catalog = $2 AND schema = $3 AND name > $4 AND ($5::text IS NULL OR name <= $5);

-- name: add_tables (durable)
-- One statement for a page: arrays inside arrays have one length in PostgreSQL, so the columns travel as text that begins with
-- the separator $10 and has it between them. None is there yet: without ON CONFLICT it takes a third less.
INSERT INTO schema_tables (engine, catalog, schema, name, columns, types, digest, lower_name, lower_columns)
SELECT $1, $2, $3, t.name, (string_to_array(t.columns, $10))[2:], (string_to_array(t.types, $10))[2:], t.digest, t.lower_name,
       t.lower_columns
FROM unnest($4::text[], $5::text[], $6::text[], $7::bytea[], $8::text[], $9::text[]) AS t(name, columns, types, digest, lower_name, lower_columns);

-- name: change_tables (durable)
UPDATE schema_tables s
SET columns = (string_to_array(t.columns, $10))[2:], types = (string_to_array(t.types, $10))[2:], digest = t.digest,
    lower_name = t.lower_name, lower_columns = t.lower_columns
FROM unnest($4::text[], $5::text[], $6::text[], $7::bytea[], $8::text[], $9::text[]) AS t(name, columns, types, digest, lower_name, lower_columns)
WHERE s.engine = $1 AND s.catalog = $2 AND s.schema = $3 AND s.name = t.name;

-- name: drop_tables (durable)
DELETE FROM schema_tables WHERE engine = $1 AND catalog = $2 AND schema = $3 AND name = ANY ($4::text[]);

-- name: count_schema (durable)
-- With its last page; between its first and its last the old numbers stand.
UPDATE schema_schemas s SET tables = t.tables, columns = t.columns
FROM (SELECT count(*) AS tables, coalesce(sum(cardinality(columns)), 0) AS columns
      FROM schema_tables WHERE engine = $1 AND catalog = $2 AND schema = $3) t
WHERE s.engine = $1 AND s.catalog = $2 AND s.schema = $3 AND (s.tables, s.columns) IS DISTINCT FROM (t.tables::int, t.columns::int);

-- Catalogs are those of both tables: a control plane of the version before writes schemas without their catalog.

-- name: counts (relaxed)
SELECT (SELECT count(*) FROM (SELECT engine, catalog FROM schema_catalogs UNION
                              SELECT engine, catalog FROM schema_schemas) known) AS catalog, count(*) AS schema, coalesce(sum(tables), 0) AS table,
       coalesce(sum(columns), 0) AS column
FROM schema_schemas;

-- name: catalogs (relaxed)
SELECT catalog AS name FROM schema_catalogs WHERE engine = $1
UNION SELECT catalog FROM schema_schemas WHERE engine = $1 ORDER BY name LIMIT 10000;

-- name: catalog (relaxed)
SELECT refreshed_at FROM schema_catalogs WHERE engine = $1 AND catalog = $2 AND error IS NULL;

-- name: schemas (relaxed)
SELECT schema AS name, refreshed_at FROM schema_schemas WHERE engine = $1 AND catalog = $2 ORDER BY schema LIMIT 100000;

-- name: schema (relaxed)
SELECT refreshed_at FROM schema_schemas WHERE engine = $1 AND catalog = $2 AND schema = $3 AND error IS NULL;

-- name: tables (relaxed)
SELECT name FROM schema_tables WHERE engine = $1 AND catalog = $2 AND schema = $3 ORDER BY name LIMIT 100000;

-- name: table (relaxed)
SELECT columns, types FROM schema_tables WHERE engine = $1 AND catalog = $2 AND schema = $3 AND name = $4;

-- name: search_prefix (relaxed)
-- Bounds in collation "C": `LIKE $1 || '%'` is no index range under a generic plan.
SELECT engine, catalog, schema, name, columns, types FROM schema_tables
WHERE engine = ANY ($1::text[]) AND ($2::text IS NULL OR catalog = $2) AND lower_name >= $3 AND lower_name < $4
ORDER BY lower_name, engine, catalog, schema LIMIT $5;

-- name: search_substring (relaxed)
SELECT engine, catalog, schema, name, columns, types FROM schema_tables
WHERE engine = ANY ($1::text[]) AND ($2::text IS NULL OR catalog = $2) AND position($3 IN lower_name) > 1
ORDER BY lower_name, engine, catalog, schema LIMIT $4;

-- name: search_columns (relaxed)
SELECT engine, catalog, schema, name, columns, types FROM schema_tables
WHERE engine = ANY ($1::text[]) AND ($2::text IS NULL OR catalog = $2) AND position($3 IN lower_columns) > 0
ORDER BY lower_name, engine, catalog, schema LIMIT $4;

-- name: stats (relaxed)
SELECT c.engine, c.catalog, c.error, s.schemas, coalesce(s.as_of, c.refreshed_at) AS as_of, s.errors, s.tables, s.columns
FROM (
    SELECT engine, catalog, error, refreshed_at FROM schema_catalogs WHERE engine = ANY ($1::text[])
    UNION ALL
    SELECT DISTINCT s.engine, s.catalog, NULL::text, NULL::timestamptz FROM schema_schemas s
    WHERE s.engine = ANY ($1::text[])
      AND NOT EXISTS (SELECT FROM schema_catalogs k WHERE k.engine = s.engine AND k.catalog = s.catalog)) c
CROSS JOIN LATERAL (
    SELECT count(*) AS schemas, min(s.refreshed_at) AS as_of,
           (array_agg(s.schema || ': ' || s.error ORDER BY s.schema) FILTER (WHERE s.error IS NOT NULL))[1:20] AS errors,
           coalesce(sum(s.tables), 0)::bigint AS tables, coalesce(sum(s.columns), 0)::bigint AS columns
    FROM schema_schemas s WHERE s.engine = c.engine AND s.catalog = c.catalog) s
ORDER BY c.engine, c.catalog;

-- name: ttl_hours (relaxed)
SELECT value FROM settings WHERE name = $1;
