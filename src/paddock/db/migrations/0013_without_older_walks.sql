-- no-transaction
-- The indexes of 0012 serve whatever these did. Taking one away locks every partition at once, for a moment: whoever reads or
-- writes meanwhile waits for at most 300 ms, and so does this, which then lets them pass and comes again.
DO $$
DECLARE
    older text;
    gone boolean;
BEGIN
    FOREACH older IN ARRAY ARRAY['kind', 'owner', 'error', 'unhappy', 'unhappy_kind', 'unhappy_owner']
    LOOP
        gone := false;
        WHILE NOT gone LOOP
            PERFORM set_config('lock_timeout', '300ms', true);
            BEGIN
                EXECUTE format('DROP INDEX IF EXISTS %I', 'job_history_' || older);
                gone := true;
            EXCEPTION WHEN lock_not_available THEN
                NULL;
            END;
            COMMIT;
            IF NOT gone THEN
                PERFORM pg_sleep(0.5);
            END IF;
        END LOOP;
    END LOOP;
END
$$;
