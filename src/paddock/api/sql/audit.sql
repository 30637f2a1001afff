-- name: audit_page (relaxed)
SELECT * FROM audit_log
WHERE ($1::uuid IS NULL OR id < $1)
  AND ($2::timestamptz IS NULL OR id >= paddock_least_id($2))
  AND ($3::text IS NULL OR subject = $3)
  AND ($4::text IS NULL OR action = $4)
  AND ($5::text IS NULL OR actor = $5)
ORDER BY id DESC LIMIT $6;
