-- Snapshots are downloaded as exports are, and a download of one holds up its deletion.
ALTER TABLE export_downloads
    ALTER COLUMN export_id DROP NOT NULL,
    ADD COLUMN snapshot_id uuid REFERENCES snapshots ON DELETE CASCADE,
    ADD CONSTRAINT export_downloads_of_one CHECK (num_nonnulls(export_id, snapshot_id) = 1);
CREATE INDEX export_downloads_snapshot ON export_downloads (snapshot_id);
