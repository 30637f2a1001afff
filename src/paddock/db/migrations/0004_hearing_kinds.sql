-- A subscriber of an event is a webhook or a kind that hears its type. The delivery of a kind names the kind in place of
-- the webhook, and the owner of its job, whom a reader may be.
ALTER TABLE deliveries
    ALTER COLUMN webhook_id DROP NOT NULL,
    ADD COLUMN kind text,
    ADD COLUMN owner text,
    ADD CONSTRAINT deliveries_subscriber CHECK ((webhook_id IS NULL) = (kind IS NOT NULL));

-- The newest job that the clock made of a schedule; `last_job_id` may also be one that a person asked for. When it fails,
-- one of Paddock's own schedules is due again soon.
ALTER TABLE schedules ADD COLUMN due_job_id uuid;
