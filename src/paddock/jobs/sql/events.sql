-- name: insert_events (durable)
INSERT INTO events (id, type, subject, version, owner, data)
SELECT paddock_id(paddock_now(), i.n), i.type, i.subject, (extract(epoch FROM paddock_now()) * 1000000)::bigint, i.owner, i.data
FROM unnest($1::text[], $2::text[], $3::text[], $4::jsonb[]) WITH ORDINALITY AS i(type, subject, owner, data, n)
RETURNING id, type, owner;

-- name: listeners (durable)
-- Who is to be told: '*' hears all, 'job.*' all of job.
SELECT i.n, w.id, w.owner FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS i(type, owner, n)
JOIN webhooks w ON w.active AND (w.all_owners OR w.owner = i.owner)
WHERE w.types && ARRAY['*', i.type, split_part(i.type, '.', 1) || '.*'];

-- name: insert_deliveries (durable)
INSERT INTO deliveries (event_id, webhook_id, job_id)
SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]);
