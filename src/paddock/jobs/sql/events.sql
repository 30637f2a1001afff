-- name: insert_events (durable)
INSERT INTO events (id, type, subject, version, owner, data)
SELECT paddock_id(paddock_now(), i.n), i.type, i.subject, (extract(epoch FROM paddock_now()) * 1000000)::bigint, i.owner, i.data
FROM unnest($1::text[], $2::text[], $3::text[], $4::jsonb[]) WITH ORDINALITY AS i(type, subject, owner, data, n)
RETURNING id, version, at;

-- name: listeners (durable)
-- Who is to be told: '*' hears all, 'job.*' all of job.
SELECT i.n, w.id, w.owner, w.url FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS i(type, owner, n)
JOIN webhooks w ON w.active AND (w.all_owners OR w.owner = i.owner)
WHERE w.types && ARRAY['*', i.type, split_part(i.type, '.', 1) || '.*'];

-- name: insert_deliveries (durable)
INSERT INTO deliveries (event_id, webhook_id, job_id)
SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]);

-- name: insert_kind_deliveries (durable)
INSERT INTO deliveries (event_id, kind, owner, job_id)
SELECT i.event_id, $2, i.owner, i.job_id FROM unnest($1::uuid[], $3::text[], $4::uuid[]) AS i(event_id, owner, job_id);

-- name: delivery_retried (durable)
-- A person tried the delivery $1 of a kind again, as job $2.
INSERT INTO deliveries (event_id, kind, owner, job_id)
SELECT event_id, kind, owner, $2 FROM deliveries WHERE job_id = $1 AND kind IS NOT NULL;

-- name: deliveries_among (durable)
SELECT job_id FROM deliveries WHERE job_id = ANY ($1::uuid[]);
