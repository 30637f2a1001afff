-- Instances on a cluster: what became of their pods, and where they answer while the API server is away.

ALTER TABLE instances
    -- How often what it ran on was taken away since it was made or reopened.
    ADD COLUMN disruptions int NOT NULL DEFAULT 0,
    -- Status, events and diagnosis of the last pod that ended by itself or was taken away.
    ADD COLUMN evidence jsonb,
    -- Of this generation: host and port. The control plane's own; never shown.
    ADD COLUMN address jsonb;
