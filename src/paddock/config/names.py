"""What settings of the core are called: in the environment, by older deployments, and in the tables of `paddock.toml`.

Capabilities name their own, see `settings.py`.
"""

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
        "max_connections",
        "drain_retry_after_seconds",
        "streams_per_token",
        "max_schedules_per_owner",
        "scaled_kinds",
        "tokens_dir",
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
    # Storage and engines need these, and in the file they have stood here from the beginning.
    "exports": ("export_bucket", "scratch", "scratch_bytes"),
}
# Keys of `[engines.warehouse]` that are paths, which start at the file that names them.
PATHS_IN_ENGINES = (
    "url",
    "roots",
    "hidden",
    "spill_folder",
    "path",
    "database",
    "ca_file",
    "password_file",
    "token_file",
)
