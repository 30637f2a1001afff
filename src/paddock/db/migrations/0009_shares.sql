-- Its last claim that took something: of two at once with one id the second finds it here and takes nothing.
ALTER TABLE sessions ADD COLUMN claim_id uuid;

-- What a job waits for, like the host it sends to, where its kind gives each such thing a share of a worker's slots.
ALTER TABLE jobs ADD COLUMN share_key text;
-- Of kinds that have shares: whoever has its share already is passed in one step, however much of it waits.
CREATE INDEX jobs_shared ON jobs (kind, owner, share_key, lane, due_at, id) WHERE attempt_id IS NULL AND share_key IS NOT NULL;

-- How many of them were the mistake of whoever asked, and nothing for an operator. Of earlier ones nobody knows, and
-- replicas of the version before, which go on beside this one for a while, do not count them.
ALTER TABLE error_stats ADD COLUMN mistakes bigint NOT NULL DEFAULT 0;

-- What of an alarm of the overview somebody has dismissed: all of it up to a time.
CREATE TABLE dismissed_alarms (
    alarm       text PRIMARY KEY,
    up_to       timestamptz NOT NULL
);
