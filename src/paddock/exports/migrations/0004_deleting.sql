-- Every pass of `lifecycle` asks for what is marked as deleted; there is hardly ever anything.
CREATE INDEX exports_deleting ON exports (id) WHERE status = 'deleting';
CREATE INDEX snapshots_deleting ON snapshots (id) WHERE status = 'deleting';
