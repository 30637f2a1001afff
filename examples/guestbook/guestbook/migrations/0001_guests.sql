CREATE TABLE guestbook_guests (
    job_id    uuid PRIMARY KEY,
    book      text NOT NULL,
    guest     text NOT NULL,
    owner     text NOT NULL,
    signed_at timestamptz NOT NULL DEFAULT paddock_now()
);
CREATE INDEX guestbook_guests_owner ON guestbook_guests (owner, signed_at DESC);
