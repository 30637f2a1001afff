-- name: scaler_counts (relaxed)
-- What a scaler is told: of workers that stay, and of those that run one job each.
SELECT paddock_backlog($1) AS backlog, paddock_unfinished($1) AS unfinished;
