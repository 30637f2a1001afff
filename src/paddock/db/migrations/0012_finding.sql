-- no-transaction
-- Every list narrowed by tag, kind, status, owner or error code, and by any two of them, walks along an index of exactly
-- those jobs: a rare match among a million others is found at once, however old it is. `kind` and `status` stand in each
-- of them, because both have few values: a list that names neither merges the walks of all that there are. No two of a table
-- begin with the same column in the same collation: of a comparison of rows the planner looks at no more, and would take either.
--
-- Each index is made in a transaction of its own, and in one for each partition, as in 0008. The file after this one takes
-- away those that these replace: an end of a job writes no more indexes than before.
DO $$
DECLARE
    wanted record;
    part record;
    done boolean;
    reached uuid := '00000000-0000-0000-0000-000000000000';
BEGIN
    -- A btree has one entry for a row, and a job several tags: a row for each. Those of live jobs go when the job ends, those of
    -- ended ones with their partition.
    CREATE TABLE IF NOT EXISTS job_tags (
        tag             text NOT NULL,
        id              uuid NOT NULL,
        PRIMARY KEY (tag, id)
    ) WITH (autovacuum_vacuum_scale_factor = 0.2, autovacuum_vacuum_threshold = 20000);
    CREATE TABLE IF NOT EXISTS job_history_tags (
        id              uuid NOT NULL,
        completed_at    timestamptz NOT NULL,
        tag             text NOT NULL,
        kind            text NOT NULL,
        status          text NOT NULL,
        owner           text NOT NULL,
        error_code      text,
        PRIMARY KEY (tag, kind, status, id, completed_at)
    ) PARTITION BY RANGE (completed_at);
    -- The tag has a collation of its own in these: a walk of one tag could skip through them from owner to owner, and would then
    -- read all that the tag has.
    CREATE INDEX IF NOT EXISTS job_history_tags_owner ON job_history_tags (owner, tag COLLATE "C", id);
    CREATE INDEX IF NOT EXISTS job_history_tags_error ON job_history_tags (error_code, tag COLLATE "C", id) WHERE error_code IS NOT NULL;
    CREATE TABLE IF NOT EXISTS job_history_tags_default PARTITION OF job_history_tags DEFAULT
        WITH (autovacuum_analyze_scale_factor = 1, autovacuum_analyze_threshold = 50000,
              autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_insert_threshold = 50000);
    -- For upkeep, which takes rows of a time out of this one. No BRIN: our connections use no bitmaps.
    CREATE INDEX IF NOT EXISTS job_history_tags_default_ended ON job_history_tags_default (completed_at);
    COMMIT;
    -- A partition for each dated one of the history, named as upkeep names its own, so that it drops them in their time and
    -- few rows are left to the default. With the trigger there are rows, and all that were wanted were made before it.
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'job_history'::regclass AND tgname = 'job_history_note_tags') THEN
        FOR part IN
            SELECT replace(c.relname, 'job_history_', 'job_history_tags_') AS name, pg_get_expr(c.relpartbound, c.oid) AS bounds
            FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'job_history'::regclass AND c.relname ~ '^job_history_[0-9]{8}$' ORDER BY c.relname
        LOOP
            EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF job_history_tags %s
                WITH (autovacuum_analyze_scale_factor = 1, autovacuum_analyze_threshold = 50000,
                      autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_insert_threshold = 50000)',
                part.name, part.bounds);
            COMMIT;
        END LOOP;
    END IF;

    -- Triggers and no part of the statements that make and end jobs: replicas of the version before, which go on beside this
    -- one for a while, know nothing of these rows. A job without tags pays for a comparison.
    CREATE OR REPLACE FUNCTION paddock_live_tags() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $live$
    BEGIN
        IF TG_OP = 'INSERT' THEN
            INSERT INTO job_tags (tag, id) SELECT tag, NEW.id FROM unnest(NEW.tags) AS tag ON CONFLICT DO NOTHING;
        ELSE
            DELETE FROM job_tags WHERE tag = ANY (OLD.tags) AND id = OLD.id;
        END IF;
        RETURN NULL;
    END $live$;
    CREATE OR REPLACE FUNCTION paddock_note_tags() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $note$
    BEGIN
        INSERT INTO job_history_tags (id, completed_at, tag, kind, status, owner, error_code)
        SELECT NEW.id, NEW.completed_at, tag, NEW.kind, NEW.status, NEW.owner, NEW.error_code FROM unnest(NEW.tags) AS tag
        ON CONFLICT DO NOTHING;
        RETURN NULL;
    END $note$;
    COMMIT;
    -- Making one locks its table, that of the history each partition too: whoever writes meanwhile waits for at most 300 ms, and so
    -- does this, which then lets them pass and comes again. The one that takes rows away is first: no job leaves any behind.
    FOR wanted IN
        SELECT * FROM (VALUES
            ('jobs', 'jobs_tags_go', 'DELETE', 'OLD', 'paddock_live_tags'),
            ('jobs', 'jobs_tags_come', 'INSERT', 'NEW', 'paddock_live_tags'),
            ('job_history', 'job_history_note_tags', 'INSERT', 'NEW', 'paddock_note_tags')
        ) AS w (of_table, name, event, changed, function)
    LOOP
        done := EXISTS (SELECT FROM pg_trigger WHERE tgrelid = wanted.of_table::regclass AND tgname = wanted.name);
        WHILE NOT done LOOP
            PERFORM set_config('lock_timeout', '300ms', true);
            BEGIN
                EXECUTE format('CREATE TRIGGER %I AFTER %s ON %I FOR EACH ROW WHEN (%s.tags <> ''{}'') EXECUTE FUNCTION %I()',
                    wanted.name, wanted.event, wanted.of_table, wanted.changed, wanted.function);
                done := true;
            EXCEPTION WHEN lock_not_available THEN
                NULL;
            END;
            COMMIT;
            IF NOT done THEN
                PERFORM pg_sleep(0.5);
            END IF;
        END LOOP;
    END LOOP;

    FOR wanted IN
        SELECT * FROM (VALUES
            ('kind_walk', '(kind, status, id)'),
            ('owner_walk', '(owner, kind, status, id)'),
            ('error_walk', '(error_code, kind, status, id) WHERE error_code IS NOT NULL'),
            ('owner_error', '(owner COLLATE "C", error_code, id) WHERE error_code IS NOT NULL')
        ) AS w (name, columns)
    LOOP
        -- From here on each new partition has it; it is a whole one when the last of the others has.
        EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON ONLY job_history %s', 'job_history_' || wanted.name, wanted.columns);
        COMMIT;
        FOR part IN
            SELECT c.oid::regclass AS name, left(c.relname, 50) || '_' || wanted.name AS index
            FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'job_history'::regclass AND NOT EXISTS (
                SELECT FROM pg_index x JOIN pg_inherits own ON own.inhrelid = x.indexrelid
                WHERE x.indrelid = c.oid AND own.inhparent = ('job_history_' || wanted.name)::regclass)
            ORDER BY c.relname
        LOOP
            EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON %s %s', part.index, part.name, wanted.columns);
            EXECUTE format('ALTER INDEX %I ATTACH PARTITION %I', 'job_history_' || wanted.name, part.index);
            COMMIT;
        END LOOP;
    END LOOP;

    -- What was there before the triggers. A job that would end meanwhile waits, or its tags would stay behind. In the order of
    -- ids, as batches that end jobs lock them, so that neither waits for the other in a circle; and claims pass over few at a time.
    WHILE reached IS NOT NULL LOOP
        WITH piece AS MATERIALIZED (
            SELECT id, tags FROM jobs WHERE id > reached AND tags <> '{}' ORDER BY id LIMIT 10000 FOR KEY SHARE
        ), noted AS (
            INSERT INTO job_tags (tag, id) SELECT tag, p.id FROM piece p CROSS JOIN LATERAL unnest(p.tags) AS tag
            ON CONFLICT DO NOTHING
        )
        SELECT (SELECT id FROM piece ORDER BY id DESC LIMIT 1) INTO reached;
        COMMIT;
    END LOOP;
    -- The history, a partition at a time.
    FOR part IN
        SELECT i.inhrelid::regclass AS name FROM pg_inherits i WHERE i.inhparent = 'job_history'::regclass ORDER BY 1
    LOOP
        EXECUTE format('INSERT INTO job_history_tags (id, completed_at, tag, kind, status, owner, error_code)
            SELECT j.id, j.completed_at, tag, j.kind, j.status, j.owner, j.error_code
            FROM %s j CROSS JOIN LATERAL unnest(j.tags) AS tag ON CONFLICT DO NOTHING', part.name);
        COMMIT;
    END LOOP;
END
$$;
