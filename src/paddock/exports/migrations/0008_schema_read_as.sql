-- What the cache of an engine was read as: under another role, or with other parts left out, it shows other names. What was read
-- before this was read as nobody and with nothing left out, or is read again.

ALTER TABLE schema_engines
    ADD COLUMN role text,
    ADD COLUMN skip text[] NOT NULL DEFAULT '{}',
    -- When the pass of the last complete refresh began: its end says nothing of when the next one is due.
    ADD COLUMN began_at timestamptz;

-- A catalog is known though its schemas could not be listed.
CREATE TABLE schema_catalogs (
    engine       text NOT NULL,
    catalog      text COLLATE "C" NOT NULL,
    -- The metadata job that saw it last; one that a whole refresh did not see is gone.
    seen_by      uuid NOT NULL,
    -- When its schemas were last listed.
    refreshed_at timestamptz,
    error        text,
    PRIMARY KEY (engine, catalog)
);

INSERT INTO schema_catalogs (engine, catalog, seen_by, refreshed_at)
SELECT DISTINCT ON (engine, catalog) engine, catalog, seen_by, refreshed_at
FROM schema_schemas ORDER BY engine, catalog, refreshed_at DESC NULLS LAST;
