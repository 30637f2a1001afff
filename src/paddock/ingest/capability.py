"""Ingest, declared: records from commands, through hooks, into Parquet."""

from paddock.capability import BY_NAME, Capability, Command, NavigationEntry

INGEST = Capability(
    name="ingest",
    title="Ingest",
    package="paddock.ingest",
    settings="paddock.ingest.settings:IngestSettings",
    check_settings="paddock.ingest.source_settings:check",
    kinds="paddock.ingest.kinds:step_kinds",
    internal_kinds="paddock.ingest.kinds:internal_kinds",
    unreachable_kinds="paddock.ingest.kinds:out_of_reach",
    internal_routes="paddock.ingest.transfer_routes:routes",
    resources="paddock.ingest.resources:resources",
    routers=("paddock.ingest.routes:router",),
    pages=("paddock.ingest.pages.ingest",),
    navigation=(NavigationEntry("/ingest", "Ingest", "ingest", "c"),),
    commands=(
        Command(
            "ingest",
            "paddock.ingest.commands.ingest:app",
            "Records from a source, through hooks, into Parquet.",
            "sources run runs show cancel delete batches retry skip rejected files download sql try",
        ),
    ),
    kept_drafts="paddock.ingest.leftovers:kept_drafts",
    gauges="paddock.ingest.figures:sample",
    audit={
        "ingest_started": ("started", "an ingest run"),
        "ingest_cancelled": ("cancelled", "an ingest run"),
        "ingest_deleted": ("deleted", "an ingest run"),
        "ingest_batch_retried": ("retried", "a batch of an ingest run"),
        "ingest_batch_skipped": ("skipped", "a batch of an ingest run"),
    },
    naming_labels=("source",),
    checks={"ingest sources": "paddock.ingest.examining:sources"},
    finder="paddock.ingest.search:find",
    schedulable={"source": "paddock.ingest.pages.scheduling:of_source"},
    places={"ingest": "/ingest/runs/{}", "run": "/ingest/runs/{}", "source": f"/ingest/{BY_NAME}"},
    around="paddock.ingest.around:around",
    made_for="paddock.ingest.pages.purposes:made_for",
)
