-- How many tables and columns each schema has, kept by the merge: counting two million columns every ten seconds, as gauges are
-- read, would take a good part of a core.

ALTER TABLE schema_schemas ADD COLUMN tables int NOT NULL DEFAULT 0, ADD COLUMN columns int NOT NULL DEFAULT 0;

UPDATE schema_schemas s SET tables = t.tables, columns = t.columns
FROM (SELECT engine, catalog, schema, count(*) AS tables, sum(cardinality(columns)) AS columns
      FROM schema_tables GROUP BY engine, catalog, schema) t
WHERE (t.engine, t.catalog, t.schema) = (s.engine, s.catalog, s.schema);
