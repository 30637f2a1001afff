-- no-transaction
-- Lists walk along an index in the order of ids, a bounded piece at a time: so do those of one group or one schedule, and those
-- of what failed and waits for its next try, or has an error. The latter are few, and whatever does well is in none of them.
--
-- Each index is made in a transaction of its own, and that of the history in one for each partition: jobs are claimed and end
-- while this runs, and wait no longer than one of them takes. Those that jobs had before go in the files after this one. That of
-- the history stays: taking it away would lock every partition at once.
DO $$
DECLARE
    part record;
BEGIN
    CREATE INDEX IF NOT EXISTS jobs_group_walk ON jobs (group_id, id) WHERE group_id IS NOT NULL;
    COMMIT;
    CREATE INDEX IF NOT EXISTS jobs_schedule_walk ON jobs (schedule, id) WHERE schedule IS NOT NULL;
    COMMIT;
    CREATE INDEX IF NOT EXISTS jobs_error ON jobs (id) WHERE error_code IS NOT NULL;
    COMMIT;
    CREATE INDEX IF NOT EXISTS jobs_retrying ON jobs (id)
        WHERE attempt_id IS NULL AND failure_count + cluster_count + lost_count > 0;
    COMMIT;
    CREATE INDEX IF NOT EXISTS jobs_retrying_owner ON jobs (owner, id)
        WHERE attempt_id IS NULL AND failure_count + cluster_count + lost_count > 0;
    COMMIT;
    -- From here on each new partition has it; it is a whole one when the last of the others has.
    CREATE INDEX IF NOT EXISTS job_history_group_walk ON ONLY job_history (group_id, id) WHERE group_id IS NOT NULL;
    COMMIT;
    FOR part IN
        SELECT c.oid::regclass AS name, left(c.relname, 50) || '_group_walk' AS index
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'job_history'::regclass AND NOT EXISTS (
            SELECT FROM pg_index x JOIN pg_inherits own ON own.inhrelid = x.indexrelid
            WHERE x.indrelid = c.oid AND own.inhparent = 'job_history_group_walk'::regclass)
        ORDER BY c.relname
    LOOP
        EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON %s (group_id, id) WHERE group_id IS NOT NULL', part.index, part.name);
        EXECUTE format('ALTER INDEX job_history_group_walk ATTACH PARTITION %I', part.index);
        COMMIT;
    END LOOP;
END
$$;
