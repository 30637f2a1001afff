-- name: newest_guests (relaxed)
SELECT book, guest, owner, signed_at FROM guestbook_guests
WHERE $1::text IS NULL OR owner = $1 ORDER BY signed_at DESC LIMIT 100;

-- name: insert_guest (durable)
INSERT INTO guestbook_guests (job_id, book, guest, owner) VALUES ($1, $2, $3, $4);

-- name: delete_old_guests (durable)
DELETE FROM guestbook_guests WHERE signed_at < paddock_now() - $1::interval;
