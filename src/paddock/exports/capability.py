"""Exports, declared: SQL to files, by plain exports and by mappings and snapshots."""

from datetime import timedelta

from paddock.capability import BY_NAME, Capability, Command, Grant, NavigationEntry, Schedule

EXPORTS = Capability(
    name="exports",
    title="Exports",
    package="paddock.exports",
    settings="paddock.exports.settings:ExportSettings",
    check_settings="paddock.exports.kinds:check_settings",
    kinds="paddock.exports.kinds:worker_kinds",
    internal_kinds="paddock.exports.kinds:internal_kinds",
    resources="paddock.exports.resources:resources",
    routers=(
        "paddock.exports.routes:router",
        "paddock.exports.mapping_routes:router",
        "paddock.exports.snapshot_routes:router",
        "paddock.exports.snapshot_file_routes:router",
        "paddock.exports.schema.routes:router",
    ),
    pages=(
        "paddock.exports.pages.exports_new",
        "paddock.exports.pages.exports",
        "paddock.exports.pages.mappings_writing",
        "paddock.exports.pages.mappings",
        "paddock.exports.pages.snapshots",
        "paddock.exports.pages.schema",
        "paddock.exports.pages.engines",
    ),
    navigation=(
        NavigationEntry("/exports", "Exports", "exports", "x"),
        NavigationEntry("/mappings", "Mappings", "mappings", "m"),
        NavigationEntry("/snapshots", "Snapshots", "snapshots", "p"),
        NavigationEntry("/engines", "Engines", "engines", "n"),
        NavigationEntry("/schema", "Schema", "search", "f"),
    ),
    commands=(
        Command("export", "paddock.exports.commands.export:export", "SQL to Parquet, CSV or JSON Lines, on your disk."),
        Command(
            "exports",
            "paddock.exports.commands.exports:app",
            "Exports and their files.",
            "list show watch download cancel rm",
        ),
        Command(
            "engines",
            "paddock.exports.commands.engines:app",
            "What runs the queries.",
            "list check browse search refresh describe preview",
        ),
        Command(
            "mappings",
            "paddock.exports.commands.mappings:app",
            "Which query gives which nodes and edges.",
            "list show versions diff copy delete validate apply",
        ),
        Command(
            "snapshots",
            "paddock.exports.commands.snapshots:app",
            "The files of a mapping, made together.",
            "create list show retry cancel delete manifest download",
        ),
    ),
    schedules=(Schedule("collect-leftovers", "collect_leftovers", timedelta(hours=1)),),
    state="paddock.exports.states:by_status",
    grants=(
        Grant("engine_roles", "engine role", "Engine roles", "What X-Use-Case-Id may say."),
        Grant("engines", "engine", "Engines", "Which it may run SQL on."),
        Grant("destinations", "destination", "Destinations", "Where it may write to."),
    ),
    kept_drafts="paddock.exports.leftovers:kept_drafts",
    closed_wholes="paddock.exports.explicit:closed_wholes",
    finder="paddock.exports.search:find",
    schedulable={
        "export": "paddock.exports.pages.scheduling:of_export",
        "snapshot": "paddock.exports.pages.scheduling:of_snapshot",
    },
    places={
        "export": "/exports/{}",
        "mapping": "/mappings/{}",
        "snapshot": "/snapshots/{}",
        "engine": f"/engines/{BY_NAME}",
    },
    made_for="paddock.exports.pages.purposes:made_for",
    audit={
        "mapping_created": ("created", "a mapping"),
        "mapping_changed": ("changed", "a mapping"),
        "mapping_deleted": ("deleted", "a mapping"),
        "snapshot_created": ("created", "a snapshot"),
        "snapshot_retried": ("retried", "a snapshot"),
        "snapshot_cancelled": ("cancelled", "a snapshot"),
        "snapshot_deleted": ("deleted", "a snapshot"),
        "delete": ("deleted", "an export"),
    },
    checks={
        "engines": "paddock.exports.examining:engines",
        "destinations": "paddock.exports.examining:destinations",
        "leftovers": "paddock.exports.examining:leftovers",
    },
)
