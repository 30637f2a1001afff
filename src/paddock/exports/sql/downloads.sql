-- Downloads under way, of exports and of snapshots.

-- name: begin_export (relaxed)
-- FOR SHARE: a deletion at the same time is over before this, and seen, or comes after it, and sees this.
INSERT INTO export_downloads (export_id, actor, until)
SELECT id, $2, paddock_now() + $3 FROM exports WHERE id = $1 AND status = 'completed' FOR SHARE RETURNING id;

-- name: begin_snapshot (relaxed)
-- As for an export.
INSERT INTO export_downloads (snapshot_id, actor, until)
SELECT id, $2, paddock_now() + $3 FROM snapshots WHERE id = $1 AND status = 'ready' FOR SHARE RETURNING id;

-- name: keep (relaxed)
UPDATE export_downloads SET until = paddock_now() + $2 WHERE id = $1;

-- name: end (relaxed)
DELETE FROM export_downloads WHERE id = $1;

-- name: live_of_export (durable)
SELECT DISTINCT actor FROM export_downloads WHERE export_id = $1 AND until > paddock_now() ORDER BY actor;

-- name: live_of_snapshot (durable)
SELECT DISTINCT actor FROM export_downloads WHERE snapshot_id = $1 AND until > paddock_now() ORDER BY actor;

-- name: forget (durable)
DELETE FROM export_downloads WHERE until <= paddock_now();
