-- name: along (relaxed)
-- Along the index of what was asked for, so that a page costs the same however rare its entries are. A row comparison,
-- not `key = value`: for a value that it takes for frequent the planner would rather walk the primary key and filter.
-- The order by all columns is one that no other index has, nor a beginning of it. Where the value ends is seen only
-- afterwards: with a bound on that side too the planner would expect few rows, and read them all.
SELECT * FROM (
    SELECT * FROM audit_log WHERE ({columns}id) < ({values}$1) ORDER BY {order}id DESC LIMIT $6) newest
WHERE id >= $2
  AND ($3::text IS NULL OR subject = $3) AND ($4::text IS NULL OR action = $4) AND ($5::text IS NULL OR actor = $5)
ORDER BY id DESC;

-- name: among (relaxed)
-- Reads what was ever done to one subject, which is little, and looks at the rest of the filter then.
SELECT * FROM (SELECT * FROM audit_log WHERE subject = $3 OFFSET 0) own
WHERE id < $1 AND id >= $2 AND ($4::text IS NULL OR action = $4) AND ($5::text IS NULL OR actor = $5)
ORDER BY id DESC LIMIT $6;

-- name: of_actions (relaxed)
-- The newest $3 of each action since $2. As above, along the index of each: entries of these actions are few among many.
SELECT found.* FROM unnest($1::text[]) AS asked(action) CROSS JOIN LATERAL (
    SELECT * FROM audit_log WHERE (action, id) < (asked.action, $4::uuid) ORDER BY action DESC, id DESC LIMIT $3) found
WHERE found.action = asked.action AND found.id >= $2
ORDER BY found.id DESC;
