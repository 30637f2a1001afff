-- What a scaler asks: how many jobs of these kinds need a worker. Whatever waits, both look at 10,000 jobs of a sort at most
-- and answer 10,000 at most: no scaler starts so many workers, and it asks every few seconds.

-- Due ones of a paused kind need nobody, unless something outside waits for them (lane 0): that a pause never holds back.
-- `with_begun` adds those that began and wait for their next turn.
CREATE FUNCTION paddock_work(kinds text[], with_begun boolean) RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
    RETURN (
        WITH asked AS MATERIALIZED (
            SELECT a.name, coalesce(k.paused, false) AS paused
            FROM (SELECT DISTINCT unnest(paddock_work.kinds) AS name) a LEFT JOIN kinds k ON k.name = a.name
        )
        SELECT count(*) FROM (
            -- Running.
            SELECT FROM jobs j WHERE j.attempt_id IS NOT NULL AND j.kind IN (SELECT a.name FROM asked a)
            UNION ALL
            -- What something outside waits for. By due time: cleanups that wait for an attempt to stop come last.
            SELECT FROM asked a CROSS JOIN LATERAL (
                SELECT j.due_at, j.waiting_on, j.started_at FROM jobs j
                WHERE j.kind = a.name AND j.lane = 0 AND j.attempt_id IS NULL ORDER BY j.due_at LIMIT 10000) j
            WHERE j.waiting_on IS NOT NULL OR j.due_at <= paddock_now() OR (with_begun AND j.started_at IS NOT NULL)
            UNION ALL
            SELECT FROM asked a CROSS JOIN generate_series(1, 4) AS l(lane) CROSS JOIN LATERAL (
                SELECT FROM jobs j
                WHERE j.kind = a.name AND j.lane = l.lane AND j.attempt_id IS NULL AND j.due_at <= paddock_now()
                LIMIT 10000) j
            WHERE NOT a.paused
            UNION ALL
            -- Where there are more than these, they and the due ones come to 10,000 already.
            SELECT FROM asked a CROSS JOIN LATERAL (
                SELECT j.due_at, j.lane FROM jobs j
                WHERE j.kind = a.name AND j.attempt_id IS NULL AND j.started_at IS NOT NULL LIMIT 10000) j
            WHERE with_begun AND NOT a.paused AND j.lane <> 0 AND j.due_at > paddock_now()
            LIMIT 10000
        ) needed
    );
REVOKE EXECUTE ON FUNCTION paddock_work(text[], boolean) FROM PUBLIC;

-- For a scaler of workers that stay.
CREATE OR REPLACE FUNCTION paddock_backlog(kinds text[]) RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
    RETURN paddock_work(kinds, false);

-- For a scaler that starts a worker for each job, which waits with its job while that waits for its next turn: without
-- these, running workers would be more than the work, and new work would get none.
CREATE FUNCTION paddock_unfinished(kinds text[]) RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
    RETURN paddock_work(kinds, true);

-- A scaler brings workers for it: that none is live says nothing while none is needed.
ALTER TABLE kinds ADD COLUMN scaled boolean NOT NULL DEFAULT false;

-- Who revoked a token: one that was revoked because its file was gone is good again when the file is back.
ALTER TABLE tokens ADD COLUMN revoked_by text;
-- Of a token whose file came back.
ALTER TABLE tokens ADD COLUMN restored_at timestamptz;

-- The roles that operators make before the first start; for one made later the docs have these lines.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paddock_reader') THEN
        GRANT EXECUTE ON FUNCTION paddock_backlog(text[]), paddock_unfinished(text[]) TO paddock_reader;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paddock_scaler') THEN
        GRANT EXECUTE ON FUNCTION paddock_backlog(text[]), paddock_unfinished(text[]) TO paddock_scaler;
    END IF;
END $$;
