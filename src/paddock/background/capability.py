"""Background jobs, declared: what the control plane does by itself."""

from paddock.capability import Capability, Command, NavigationEntry

BACKGROUND = Capability(
    name="background",
    title="Background jobs",
    package="paddock.background",
    settings="paddock.background.settings:BackgroundSettings",
    internal_kinds="paddock.background.declared:internal_kinds",
    alongside="paddock.background.declared:alongside",
    gauges="paddock.background.gauges:sample",
    state="paddock.background.service:health",
    alarms="paddock.background.alarming:clauses",
    routers=("paddock.background.routes:router",),
    pages=("paddock.background.pages.background",),
    navigation=(NavigationEntry("/background", "Background jobs", "again", "u"),),
    commands=(
        Command(
            "ops",
            "paddock.background.commands.ops:app",
            "Background jobs and the state.",
            "jobs trigger state export-jobs",
        ),
    ),
    checks={"background jobs": "paddock.background.examining:background_jobs"},
)
