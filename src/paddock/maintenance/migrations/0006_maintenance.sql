-- Maintenance: the tables that looks have seen, as they were then, and what was done to them. A table itself belongs to its
-- catalog: what stands here is only what somebody saw of it.

CREATE TABLE lake_tables (
    catalog     text NOT NULL,
    -- Its levels, joined by the unit separator (U+001F), which no name holds.
    namespace   text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    uuid        text,
    location    text,
    snapshot_id bigint,
    figures     jsonb NOT NULL DEFAULT '{}',
    issues      jsonb NOT NULL DEFAULT '[]',
    policy      jsonb NOT NULL DEFAULT '{}',
    -- Actions that are recommended, each with why.
    recommended jsonb NOT NULL DEFAULT '[]',
    health      text NOT NULL DEFAULT 'unknown' CHECK (health IN ('healthy', 'warning', 'critical', 'unknown')),
    -- Why the last look could not load it; its figures are then of an earlier one.
    problem     text,
    seen_at     timestamptz NOT NULL DEFAULT paddock_now(),
    -- The round of looks that saw it last: what a whole round did not see is gone.
    round       text,
    -- The last end of its maintenance, and how many ends in a row were failures.
    maintained_at timestamptz,
    maintained_job uuid,
    failures    int NOT NULL DEFAULT 0,
    orphans_removed_at timestamptz,
    PRIMARY KEY (catalog, namespace, name)
);
CREATE INDEX lake_tables_uuid ON lake_tables (uuid);

-- When the last whole round of a catalog ended, and what the last one that failed said.
CREATE TABLE lake_catalogs (
    catalog     text PRIMARY KEY,
    seen_at     timestamptz,
    tables      int,
    problem     text,
    problem_at  timestamptz
);

CREATE TABLE table_actions (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id      uuid NOT NULL,
    catalog     text NOT NULL,
    namespace   text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    uuid        text NOT NULL,
    action      text NOT NULL,
    outcome     text NOT NULL CHECK (outcome IN ('success', 'skipped', 'failed')),
    message     text NOT NULL,
    error       text,
    figures     jsonb NOT NULL DEFAULT '{}',
    details     jsonb NOT NULL DEFAULT '{}',
    alarms      text[] NOT NULL DEFAULT '{}',
    at          timestamptz NOT NULL DEFAULT paddock_now(),
    -- An end is told once, however often its transaction is tried.
    UNIQUE (job_id, action)
);
CREATE INDEX table_actions_table ON table_actions (catalog, namespace, name, id);
CREATE INDEX table_actions_at ON table_actions (at);
