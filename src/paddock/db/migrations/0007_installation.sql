-- Whose cluster it is. One row: the id that each object of ours carries, and what it was bound to at the first start: the uid
-- of the namespace of instances, and home, the control plane's own namespace and release. A database that finds itself
-- anywhere else (restored, cloned, on another cluster) touches nothing there until somebody binds it anew.
CREATE TABLE installation (
    one           boolean PRIMARY KEY DEFAULT true CHECK (one),
    id            uuid NOT NULL DEFAULT gen_random_uuid(),
    namespace     text NOT NULL,
    namespace_uid text NOT NULL,
    home          text NOT NULL,
    bound_at      timestamptz NOT NULL DEFAULT paddock_now(),
    bound_by      text NOT NULL
);
