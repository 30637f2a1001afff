-- Who needs a snapshot's files: while one does, it cannot be deleted. A use is taken under the snapshot's row lock, which
-- its deletion takes too, so neither misses the other.
CREATE TABLE snapshot_uses (
    snapshot_id uuid NOT NULL REFERENCES snapshots DEFERRABLE INITIALLY DEFERRED,
    -- Like `instance:{id}`.
    subject     text NOT NULL,
    owner       text NOT NULL,
    -- As people know it.
    name        text NOT NULL,
    taken_at    timestamptz NOT NULL DEFAULT paddock_now(),
    PRIMARY KEY (snapshot_id, subject)
);
CREATE INDEX snapshot_uses_subject ON snapshot_uses (subject);
