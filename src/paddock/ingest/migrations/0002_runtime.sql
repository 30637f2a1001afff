-- Where a run's steps run is settled when it starts: a changed paddock.toml moves none that is at work. Containers prove by the
-- run's key which step of which batch they are; it goes with the run.
ALTER TABLE ingest_runs ADD COLUMN runtime text NOT NULL DEFAULT 'local' CHECK (runtime IN ('local', 'kubernetes')),
    ADD COLUMN transfer_key bytea CHECK (runtime = 'local' OR transfer_key IS NOT NULL);
