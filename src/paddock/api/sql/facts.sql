-- name: events_along (relaxed)
-- Along the index of what was asked for, as the audit log (audit.sql says why it is written so): a page costs the same
-- however rare an owner's events are, or those of a type.
SELECT * FROM (
    SELECT id, type, subject, version, owner, data, at FROM events
    WHERE ({columns}id) < ({values}$1) ORDER BY {order}id DESC LIMIT $3) newest
WHERE ($2::text IS NULL OR type = $2) AND ($4::text IS NULL OR owner = $4)
ORDER BY id DESC;

-- name: events_of_subject (relaxed)
SELECT id, type, subject, version, owner, data, at FROM events
WHERE subject = $4 AND id < $1 AND ($2::text IS NULL OR type = $2) AND ($5::text IS NULL OR owner = $5)
ORDER BY id DESC LIMIT $3;

-- name: event (relaxed)
SELECT id, type, subject, version, owner, data, at FROM events WHERE id = $1;

-- name: deliveries_of_event (relaxed)
-- $2: only those of this owner's webhooks. What another's webhook was told is another's work; and one for everybody's
-- events is the operators', though an analyst may have its owner's name. A kind's delivery is its job's owner's.
SELECT d.webhook_id, d.kind, d.job_id, d.created_at, w.url, coalesce(w.owner, d.owner) AS owner,
       CASE WHEN d.kind IS NULL THEN w.active ELSE true END AS active
FROM deliveries d LEFT JOIN webhooks w ON w.id = d.webhook_id
WHERE d.event_id = $1 AND ($2::text IS NULL OR w.owner = $2 AND NOT w.all_owners OR d.owner = $2)
  AND d.job_id < $3
ORDER BY d.job_id DESC LIMIT $4;

-- name: deliveries_of_events (relaxed)
SELECT d.event_id, d.webhook_id, d.job_id
FROM unnest($1::uuid[]) AS e(id)
CROSS JOIN LATERAL (
    SELECT o.* FROM deliveries o LEFT JOIN webhooks w ON w.id = o.webhook_id
    WHERE o.event_id = e.id AND ($2::text IS NULL OR w.owner = $2 AND NOT w.all_owners OR o.owner = $2)
    ORDER BY o.event_id DESC, o.job_id DESC LIMIT $3) d;

-- name: deliveries_of_webhook (relaxed)
SELECT d.event_id, d.webhook_id, d.kind, d.job_id, d.job_id AS id, d.created_at, e.type, e.subject
FROM (SELECT * FROM deliveries WHERE webhook_id = $1 AND job_id < $2
      ORDER BY webhook_id DESC, job_id DESC LIMIT $3) d
LEFT JOIN events e ON e.id = d.event_id
ORDER BY d.job_id DESC;

-- name: outcomes_of_webhooks (relaxed)
-- The newest $2 deliveries of each, made within $1. What was made within that time ended within it, so few partitions
-- of the history are looked at.
SELECT d.webhook_id, d.job_id, d.created_at, s.status, s.failures, s.error_code, s.error_message
FROM unnest($3::uuid[]) AS w(id)
CROSS JOIN LATERAL (
    SELECT * FROM deliveries WHERE webhook_id = w.id AND job_id >= paddock_least_id(paddock_now() - $1::interval)
    ORDER BY webhook_id DESC, job_id DESC LIMIT $2) d
CROSS JOIN LATERAL (
    SELECT status, failure_count + cluster_count AS failures, error_code, error_message FROM jobs WHERE id = d.job_id
    UNION ALL
    SELECT CASE WHEN result ? 'skipped' THEN 'skipped' ELSE status END, failure_count + cluster_count, error_code,
           error_message
    FROM job_history WHERE id = d.job_id AND completed_at >= paddock_now() - $1::interval) s
ORDER BY d.webhook_id, d.job_id DESC;

-- name: webhooks_told (durable)
-- The live subscriptions an event went to, or those named by $3, which need not have heard it before; but nobody's
-- receiver is told of another's event, whoever asks.
SELECT w.id, w.owner, w.url FROM webhooks w
WHERE ($2::text IS NULL OR w.owner = $2 AND NOT w.all_owners) AND w.active
  AND CASE WHEN $3::uuid[] IS NULL
           THEN w.id IN (SELECT d.webhook_id FROM deliveries d WHERE d.event_id = $1)
           ELSE w.id = ANY ($3) END
  AND (w.all_owners OR w.owner = (SELECT e.owner FROM events e WHERE e.id = $1))
ORDER BY w.id LIMIT 1000;

-- name: kinds_told (durable)
SELECT DISTINCT kind FROM deliveries WHERE event_id = $1 AND kind IS NOT NULL AND ($2::text IS NULL OR owner = $2);

-- name: webhooks_page (relaxed)
SELECT id, owner, all_owners, url, types, active, created_at FROM webhooks
WHERE ($1::text IS NULL OR owner = $1 AND NOT all_owners) AND ($2::uuid IS NULL OR id < $2)
  AND ($4::text IS NULL OR owner = $4) AND ($5::bool IS NULL OR active = $5)
  AND ($6::text IS NULL OR position(lower($6) IN lower(url || ' ' || array_to_string(types, ' '))) > 0)
ORDER BY id DESC LIMIT $3;

-- name: webhook (relaxed)
SELECT id, owner, all_owners, url, types, active, created_at FROM webhooks WHERE id = $1;

-- name: webhook_with_secret (durable)
SELECT id, owner, all_owners, url, types, active, created_at, secret FROM webhooks WHERE id = $1;

-- name: count_webhooks (durable)
SELECT count(*) FROM webhooks WHERE owner = $1;

-- name: insert_webhook (durable)
INSERT INTO webhooks (owner, all_owners, url, types, secret) VALUES ($1, $2, $3, $4, $5)
RETURNING id, owner, all_owners, url, types, active, created_at;

-- name: change_webhook (durable)
-- NULL: as it is. Deliveries that wait go to the new address, under the same secret.
UPDATE webhooks SET url = coalesce($2, url), types = coalesce($3, types), active = coalesce($4, active)
WHERE id = $1 RETURNING id, owner, all_owners, url, types, active, created_at;

-- name: delete_webhook (durable)
DELETE FROM webhooks WHERE id = $1 RETURNING id, owner, all_owners, url, types, active, created_at;
