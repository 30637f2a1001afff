"""What settings are called: in the environment, by older deployments, and in the tables of `paddock.toml`."""

from collections.abc import Mapping

PREFIX = "PADDOCK_"
OLDER_PREFIX = "GRAPH_OLAP_"

# Names that older deployments set. They rank below PADDOCK_* and above the file.
OLDER_NAMES: Mapping[str, str] = {
    "CONTROL_PLANE_URL": "server",
    "LOG_LEVEL": "log_level",
    "POLL_INTERVAL_SECONDS": "poll_interval_seconds",
    "EMPTY_POLL_BACKOFF": "empty_poll_backoff",
    "STARBURST_URL": "starburst_url",
    "STARBURST_USER": "starburst_user",
    "STARBURST_PASSWORD": "starburst_password",
    "STARBURST_CLIENT_TAGS": "starburst_client_tags",
    "STARBURST_SOURCE": "starburst_source",
    "DIRECT_EXPORT": "direct_export",
    "GCP_PROJECT": "gcp_project",
    "EXPORT_BUCKET": "export_bucket",
}

# In the file a setting stands at the top, or in its table with or without the table's name: `log_level = "debug"`,
# or `[log]` and `level = "debug"`.
TABLES: Mapping[str, tuple[str, ...]] = {
    "serve": (
        "host",
        "port",
        "internal_port",
        "public_url",
        "trusted_proxies",
        "allowed_hosts",
        "max_body_bytes",
        "drain_retry_after_seconds",
        "streams_per_token",
        "webhook_allow_private",
    ),
    "database": ("database_url", "durable_pool", "relaxed_pool"),
    "storage": ("data", "object_store"),
    "worker": (
        "server",
        "token",
        "token_file",
        "worker_id",
        "worker_kinds",
        "worker_port",
        "concurrency",
        "kind_concurrency",
        "submitted_concurrency",
        "claims_in_flight",
        "poll_interval_seconds",
        "empty_poll_backoff",
        "beat_seconds",
    ),
    "jobs": ("lease_seconds", "rescue_seconds", "claim_grace_seconds", "history_days", "audit_days"),
    "log": ("log_level", "log_format", "log_days"),
    "metrics": ("metrics_port", "metrics_token"),
    "otel": ("otel_endpoint",),
    "starburst": (
        "starburst_url",
        "starburst_user",
        "starburst_password",
        "starburst_client_tags",
        "starburst_source",
    ),
    "exports": (
        "direct_export",
        "gcp_project",
        "export_bucket",
        "scratch",
        "scratch_bytes",
        "export_memory_bytes",
        "explicit_snapshots",
    ),
    "dumps": (
        "dumps_databases",
        "dumps_default_database",
        "dumps_sync_max_seconds",
        "dumps_keep_days",
        "dumps_slice_seconds",
        "dumps_part_bytes",
        "dumps_cors_origins",
        "dumps_callback_allow_http",
    ),
}
# Tables of tables, one for each name: `[engines.warehouse]`, `[dumps.databases.shop]`. What is in them is checked by who uses it.
NAMED_TABLES = ("engines", "destinations", "dumps_databases")
# Of those, what is a path: it starts at the file that names it.
PATHS_IN_TABLES = (
    "roots", "hidden", "spill_folder", "path", "database", "ca_file", "password_file", "token_file", "work_dir", "pg_dump"
)  # fmt: skip
