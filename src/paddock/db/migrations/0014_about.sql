-- no-transaction
-- What a job is about, in one line, as its kind tells from the payload when the job is made; of earlier ones nobody said it.
-- The history and each of its partitions are locked for a moment: whoever reads or writes meanwhile waits for at most 300 ms,
-- and so does this, which then lets them pass and comes again.
DO $$
DECLARE
    wanting text;
    done boolean;
BEGIN
    FOREACH wanting IN ARRAY ARRAY['jobs', 'job_history']
    LOOP
        done := false;
        WHILE NOT done LOOP
            PERFORM set_config('lock_timeout', '300ms', true);
            BEGIN
                EXECUTE format('ALTER TABLE %I ADD COLUMN IF NOT EXISTS about text', wanting);
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
END
$$;
