-- The schema cache: one row for each table, with its columns. Names are compared byte by byte, as pages of a reading are.

CREATE TABLE schema_engines (
    engine       text PRIMARY KEY,
    -- The last refresh that read all of it, schemas that failed aside.
    refreshed_at timestamptz,
    -- What the last one came to: success, failed or skipped, and why.
    status       text,
    note         text
);

CREATE TABLE schema_schemas (
    engine       text NOT NULL,
    catalog      text COLLATE "C" NOT NULL,
    schema       text COLLATE "C" NOT NULL,
    -- The metadata job that saw it last; one that a whole refresh did not see is gone.
    seen_by      uuid NOT NULL,
    refreshed_at timestamptz,
    error        text,
    PRIMARY KEY (engine, catalog, schema)
);

CREATE TABLE schema_tables (
    engine       text NOT NULL,
    catalog      text COLLATE "C" NOT NULL,
    schema       text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    -- Column by column: its name and the engine's own word for its type.
    columns      text[] NOT NULL,
    types        text[] NOT NULL,
    digest       bytea NOT NULL,
    -- In lower case as Python has it: lower() of this collation knows ASCII alone.
    lower_name   text COLLATE "C" NOT NULL,
    lower_columns text COLLATE "C" NOT NULL,
    PRIMARY KEY (engine, catalog, schema, name)
);
-- A search by the beginning of a name is a range of this index, whatever the plan.
CREATE INDEX schema_tables_name ON schema_tables (lower_name);
