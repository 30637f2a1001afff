-- name: dismiss_alarm (durable)
-- The later of two dismissals counts, and none reaches into the future.
INSERT INTO dismissed_alarms AS d (alarm, up_to) VALUES ($1, least($2, paddock_now()))
ON CONFLICT (alarm) DO UPDATE SET up_to = greatest(d.up_to, excluded.up_to);

-- name: dismissed_alarms (relaxed)
SELECT alarm, up_to FROM dismissed_alarms;
