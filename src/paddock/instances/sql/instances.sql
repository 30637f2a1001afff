-- Locks are taken in this order: the limits, the job that holds the instance's lock, the instance, its snapshot. The end of
-- a job has locked the job before its hook comes to the instance.

-- name: new_id (durable)
SELECT paddock_id(paddock_now());

-- name: lock_limits (durable)
-- Whatever makes an instance live or larger comes one after the other: the second sees what the first made.
SELECT pg_advisory_xact_lock(7236, 0);

-- name: live_sums (durable)
-- All that are live but $2; those of the owner $1 besides. One that grows counts with what it may have.
SELECT count(*) AS total, coalesce(sum(greatest(memory_gb, growing_to_gb)), 0) AS memory_gb,
       count(*) FILTER (WHERE owner = $1) AS own,
       coalesce(sum(greatest(memory_gb, growing_to_gb)) FILTER (WHERE owner = $1), 0) AS own_memory_gb
FROM instances
WHERE status IN ('waiting_for_snapshot', 'starting', 'running', 'stopping') AND id IS DISTINCT FROM $2;

-- name: own_live (durable)
SELECT id, name, status, memory_gb FROM instances
WHERE owner = $1 AND status IN ('waiting_for_snapshot', 'starting', 'running', 'stopping') ORDER BY id LIMIT 20;

-- name: settings (durable)
SELECT name, value FROM settings WHERE name = ANY ($1::text[]);

-- name: insert_instance (durable)
INSERT INTO instances (id, owner, name, description, status, wrapper_type, mapping_id, mapping_version, pending_snapshot_id,
                       made_snapshot, cpu_cores, memory_gb, memory_asked, ttl, inactivity_timeout)
VALUES ($1, $2, $3, $4, 'waiting_for_snapshot', $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

-- name: lock_job_of_instance (durable)
-- Whoever ends it waits: it is ended here, or not before this transaction is.
SELECT id, kind, cleanup_of, turn_count FROM jobs WHERE lock_key = 'instance:' || $1::uuid FOR UPDATE;

-- name: note_address (durable)
UPDATE instances SET address = $3 WHERE id = $1 AND generation = $2;

-- name: kind_at_work (relaxed)
SELECT kind FROM jobs WHERE lock_key = 'instance:' || $1::uuid;

-- name: lock_instance (durable)
SELECT * FROM instances WHERE id = $1 FOR UPDATE;

-- name: begin_start (durable)
-- A new generation with its number, name and token, before anything runs. Guard: the status that the caller saw.
-- A reopened one ($6) counts its time to live from when it runs again.
UPDATE instances
SET status = 'starting', generation = $3, generation_number = generation_number + 1, token = $4,
    pod_name = wrapper_type || '-wrapper-' || id || '-' || (generation_number + 1), generation_at = paddock_now(),
    snapshot_id = coalesce(pending_snapshot_id, snapshot_id), pending_snapshot_id = NULL, memory_gb = $5, growing_to_gb = NULL,
    started_at = CASE WHEN $6::boolean THEN NULL ELSE started_at END,
    expires_at = CASE WHEN $6::boolean THEN NULL ELSE expires_at END,
    memory_steps = CASE WHEN $6::boolean THEN 0 ELSE memory_steps END,
    disruptions = CASE WHEN $6::boolean THEN 0 ELSE disruptions END,
    log = CASE WHEN $6::boolean THEN NULL ELSE log END, evidence = CASE WHEN $6::boolean THEN NULL ELSE evidence END,
    engine_restarts = 0, again = false, error = NULL, ended_at = NULL, counts = NULL, dangling_edges = NULL, address = NULL
WHERE id = $1 AND status = ANY ($2::text[])
RETURNING *;

-- name: mark_running (durable)
-- Guard: the generation. One that was deleted or started anew meanwhile stays as it is.
UPDATE instances
SET status = 'running', counts = $3, dangling_edges = $4, address = $5, started_at = coalesce(started_at, paddock_now()),
    last_activity_at = paddock_now(),
    expires_at = coalesce(started_at, paddock_now()) + ttl
WHERE id = $1 AND generation = $2 AND status = 'starting'
RETURNING *, date_part('epoch', paddock_now() - generation_at) AS start_seconds;

-- name: mark_failed (durable)
-- Guard: the status, and the generation where there is one. Its time to live counts from here.
UPDATE instances
SET status = 'failed', error = $4, ended_at = paddock_now(), expires_at = paddock_now() + ttl, again = false
WHERE id = $1 AND status = ANY ($3::text[]) AND generation IS NOT DISTINCT FROM $2
RETURNING *;

-- name: mark_again (durable)
-- Its start failed for a reason that another one gets over; the cleanup of this one begins it.
UPDATE instances SET again = true, memory_gb = $3, memory_steps = memory_steps + $4
WHERE id = $1 AND generation = $2 AND status IN ('starting', 'running')
RETURNING *;

-- name: mark_disrupted (durable)
-- What it ran on was taken away; the cleanup of its start, or whoever found out, begins the next one.
UPDATE instances SET again = true, disruptions = disruptions + 1
WHERE id = $1 AND generation = $2 AND status IN ('starting', 'running');

-- name: keep_evidence (durable)
-- What was known before stays where nothing is known now.
UPDATE instances SET log = coalesce($3, log), evidence = coalesce($4, evidence) WHERE id = $1 AND generation = $2;

-- name: mark_stopping (durable)
UPDATE instances SET status = 'stopping', deleted_by = $2, delete_reason = $3, ended_at = paddock_now()
WHERE id = $1 AND status <> 'stopping'
RETURNING *;

-- name: drop_instance (durable)
-- Last of all: what ran for it is gone.
DELETE FROM instances WHERE id = $1 AND status = 'stopping' AND generation IS NOT DISTINCT FROM $2 RETURNING *;

-- name: change_instance (durable)
UPDATE instances
SET name = coalesce($2, name), description = coalesce($3, description), ttl = coalesce($4, ttl),
    inactivity_timeout = coalesce($5, inactivity_timeout),
    expires_at = CASE WHEN expires_at IS NULL THEN NULL ELSE expires_at - ttl + coalesce($4, ttl) END
WHERE id = $1
RETURNING *, expires_at <= paddock_now() AS over, expires_at - paddock_now() AS time_left;

-- name: note_activity (relaxed)
-- At most once a minute, whoever asks.
UPDATE instances SET last_activity_at = paddock_now()
WHERE id = $1 AND (last_activity_at IS NULL OR last_activity_at < paddock_now() - interval '1 minute');

-- name: note_engine_restarts (durable)
-- Guard: the generation, and that nobody has seen it yet. Returns how often it was before.
UPDATE instances i SET engine_restarts = $3
FROM (SELECT id, engine_restarts FROM instances WHERE id = $1 FOR UPDATE) before
WHERE i.id = before.id AND i.generation = $2 AND before.engine_restarts < $3
RETURNING before.engine_restarts AS seen, i.owner;

-- name: waiting_for (durable)
SELECT id, owner FROM instances
WHERE pending_snapshot_id = $1 AND status = 'waiting_for_snapshot' ORDER BY id LIMIT $2;

-- name: to_be_found (relaxed)
-- Those that something should run for.
SELECT id FROM instances WHERE status IN ('starting', 'running') AND id > $1 ORDER BY id LIMIT $2;

-- name: running_pods (relaxed)
SELECT id, name, owner, status, pod_name FROM instances
WHERE status = 'running' AND pod_name IS NOT NULL ORDER BY id LIMIT $1;

-- name: failures_by_category (relaxed)
SELECT error #>> '{diagnosis,category}' AS category, count(*) AS n FROM instances
WHERE error #>> '{diagnosis,category}' IS NOT NULL GROUP BY 1;

-- name: left_stopping (relaxed)
SELECT i.id FROM instances i
WHERE i.status = 'stopping' AND i.id > $1
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.lock_key = 'instance:' || i.id)
ORDER BY i.id LIMIT $2;

-- name: instance_row (durable)
-- With its token: for the control plane alone.
SELECT * FROM instances WHERE id = $1;

-- name: secret (relaxed)
-- What whoever speaks to it needs. For the control plane alone: it holds the token.
SELECT status, generation, pod_name, token, address FROM instances WHERE id = $1;

-- name: log (relaxed)
SELECT log FROM instances WHERE id = $1;

-- name: evidence (relaxed)
SELECT evidence FROM instances WHERE id = $1;

-- name: instance (relaxed)
SELECT * FROM instance_states WHERE id = $1;

-- name: instances_page (relaxed)
-- With $3 those that this owner has or that are shared with them; else everybody's.
SELECT * FROM instance_states i
WHERE i.id < $1
  AND ($3::text IS NULL OR i.owner = $3
       OR EXISTS (SELECT FROM instance_grants g WHERE g.instance_id = i.id AND g.owner = $3))
  AND ($4::text IS NULL OR i.owner = $4) AND ($5::uuid IS NULL OR i.mapping_id = $5)
  AND ($6::uuid IS NULL OR i.snapshot_id = $6 OR i.pending_snapshot_id = $6)
  AND ($7::text[] IS NULL OR i.status = ANY ($7))
  AND ($8::text IS NULL OR position(lower($8) IN lower(i.name || E'\n' || i.description)) > 0)
  AND ($9::text IS NULL OR lower(i.name) = lower($9))
ORDER BY i.id DESC LIMIT $2;

-- name: matching_ids (relaxed)
SELECT id FROM instances
WHERE ($1::text IS NULL OR owner = $1) AND ($2::text IS NULL OR owner = $2) AND ($3::text[] IS NULL OR status = ANY ($3))
  AND ($4::text IS NULL OR starts_with(name, $4)) AND ($5::interval IS NULL OR created_at <= paddock_now() - $5)
ORDER BY id LIMIT $6;

-- name: algorithm_at_work (relaxed)
SELECT id, owner, payload, created_at, started_at, cleanup_of FROM jobs WHERE lock_key = 'algorithm:' || $1::uuid;

-- name: lock_algorithm_job (durable)
SELECT id FROM jobs WHERE lock_key = 'algorithm:' || $1::uuid AND cleanup_of IS NULL FOR UPDATE;

-- name: gone (relaxed)
-- The newest word of the audit log on an instance that was deleted.
SELECT at, actor, reason, details FROM audit_log
WHERE subject = 'instance:' || $1::uuid AND action = 'instance_deleted' ORDER BY id DESC LIMIT 1;

-- name: put_grant (durable)
INSERT INTO instance_grants (instance_id, owner, granted_by) VALUES ($1, $2, $3)
ON CONFLICT (instance_id, owner) DO NOTHING RETURNING true;

-- name: drop_grant (durable)
DELETE FROM instance_grants WHERE instance_id = $1 AND owner = $2 RETURNING true;

-- name: grants (relaxed)
SELECT owner, granted_by, granted_at FROM instance_grants WHERE instance_id = $1 ORDER BY owner LIMIT 1000;

-- name: save_query (durable)
INSERT INTO saved_queries (id, mapping_id, owner, name, query) VALUES (paddock_id(paddock_now()), $1, $2, $3, $4)
ON CONFLICT (mapping_id, lower(name)) DO NOTHING RETURNING *;

-- name: saved_queries (relaxed)
SELECT * FROM saved_queries WHERE mapping_id = $1 AND id > $2 ORDER BY id LIMIT $3;

-- name: count_saved_queries (durable)
SELECT count(*) FROM saved_queries WHERE mapping_id = $1;

-- name: drop_saved_query (durable)
DELETE FROM saved_queries WHERE id = $1 AND mapping_id = $2 RETURNING *;

-- name: place (durable)
SELECT place FROM instance_place;

-- name: take_place (durable)
INSERT INTO instance_place (place) VALUES ($1) ON CONFLICT (one) DO UPDATE SET place = excluded.place;

-- name: some_live (durable)
SELECT count(*) FROM instances WHERE status <> 'waiting_for_snapshot';

-- name: lock_place (durable)
SELECT pg_advisory_xact_lock(7236, 1);

-- name: instance_counts (relaxed)
SELECT status, count(*) AS n FROM instances GROUP BY status;

-- name: without_pod_name (relaxed)
SELECT count(*) FROM instances WHERE status IN ('starting', 'running') AND pod_name IS NULL;

-- name: expired_instances (relaxed)
-- By the time they expired, those after $1, $2; failed ones too.
SELECT id, expires_at, ttl FROM instances
WHERE expires_at <= paddock_now() AND status <> 'stopping'
  AND ($1::timestamptz IS NULL OR (expires_at, id) > ($1, $2::uuid))
ORDER BY expires_at, id LIMIT $3;

-- name: is_expired (durable)
SELECT true FROM instances WHERE id = $1 AND status <> 'stopping' AND expires_at <= paddock_now() FOR UPDATE;

-- name: idle_instances (relaxed)
SELECT id, coalesce(last_activity_at, started_at) + inactivity_timeout AS expires_at, inactivity_timeout FROM instances
WHERE status = 'running' AND paddock_now() >= coalesce(last_activity_at, started_at) + inactivity_timeout
  AND ($1::uuid IS NULL OR id > $1)
ORDER BY id LIMIT $2;

-- name: is_idle (durable)
SELECT true FROM instances
WHERE id = $1 AND status = 'running' AND paddock_now() >= coalesce(last_activity_at, started_at) + inactivity_timeout
FOR UPDATE;

-- name: expiring_instances (relaxed)
-- Those that end within $1.
SELECT id, owner, name, expires_at FROM instances
WHERE status = 'running' AND expires_at > paddock_now() AND expires_at <= paddock_now() + $1::interval AND ($2::uuid IS NULL OR id > $2)
ORDER BY id LIMIT $3;

-- name: following_late (relaxed)
-- Those that wait for a snapshot which has ended or is gone.
SELECT i.id FROM instances i LEFT JOIN snapshot_states s ON s.id = i.pending_snapshot_id
WHERE i.status = 'waiting_for_snapshot' AND (s.id IS NULL OR s.status NOT IN ('pending', 'creating'))
  AND ($1::uuid IS NULL OR i.id > $1)
ORDER BY i.id LIMIT $2;

-- name: named_pods (durable)
SELECT pod_name FROM instances WHERE pod_name = ANY ($1::text[]);

-- name: instances_by_pod (relaxed)
-- In the order of the runtime's lists, which compare names byte by byte. Both bounds are always there: a range without its end
-- would be read to the end of the index where it holds fewer than a page.
SELECT id, pod_name, generation, status FROM instances
WHERE pod_name COLLATE "C" > $1 AND pod_name COLLATE "C" <= $2
ORDER BY pod_name COLLATE "C" LIMIT $3;

-- name: lock_is_held (durable)
SELECT EXISTS (SELECT FROM jobs WHERE lock_key = 'instance:' || $1::uuid);

-- name: running_instances (relaxed)
SELECT id, owner, generation, pod_name, memory_gb, memory_steps FROM instances
WHERE status = 'running' AND ($1::uuid IS NULL OR id > $1) ORDER BY id LIMIT $2;

-- name: now (relaxed)
SELECT paddock_now();

-- name: reserve_growth (durable)
-- Under the lock of the limits, with the check that there is room for it.
UPDATE instances SET growing_to_gb = $3 WHERE id = $1 AND generation = $2 AND status = 'running';

-- name: end_growth (durable)
UPDATE instances SET growing_to_gb = NULL WHERE id = $1 AND growing_to_gb IS NOT NULL;

-- name: end_lost_growths (durable)
-- Of jobs whose end did not say so: a control plane of the version before ends them without. Under the lock of the limits, so
-- that no job that is younger than this statement has reserved what it sees.
UPDATE instances i SET growing_to_gb = NULL
WHERE growing_to_gb IS NOT NULL
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.lock_key = 'instance:' || i.id AND j.kind = 'instance_grow')
RETURNING id;

-- name: mark_resized (durable)
UPDATE instances SET memory_gb = $3, memory_steps = memory_steps + 1 WHERE id = $1 AND generation = $2 AND status = 'running';
