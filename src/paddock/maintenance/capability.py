"""Maintenance, declared: Iceberg tables kept healthy, by hand and by themselves."""

from datetime import timedelta

from paddock.capability import BY_NAME, Capability, Command, NavigationEntry, Schedule

MAINTENANCE = Capability(
    name="maintenance",
    title="Maintenance",
    package="paddock.maintenance",
    settings="paddock.maintenance.settings:MaintenanceSettings",
    kinds="paddock.maintenance.kinds:worker_kinds",
    internal_kinds="paddock.maintenance.kinds:internal_kinds",
    resources="paddock.maintenance.resources:resources",
    unreachable_kinds="paddock.maintenance.kinds:out_of_reach",
    routers=("paddock.maintenance.routes:router",),
    pages=("paddock.maintenance.pages.tables",),
    navigation=(NavigationEntry("/tables", "Tables", "tables", "b"),),
    commands=(
        Command(
            "tables",
            "paddock.maintenance.commands.tables:app",
            "Iceberg tables, how they are, and their maintenance.",
            "list show look plan maintain history why",
        ),
        Command("catalogs", "paddock.maintenance.commands.catalogs:app", "Where the tables are named.", "list check"),
    ),
    schedules=(
        Schedule("look-at-tables", "look_at_tables", timedelta(hours=1)),
        Schedule("maintenance-pass", "maintenance_pass", timedelta(minutes=5)),
    ),
    naming_kinds=("maintenance:", "tables:"),
    made_for="paddock.maintenance.pages.purposes:made_for",
    finder="paddock.maintenance.search:find",
    schedulable={"table": "paddock.maintenance.pages.scheduling:of_table"},
    places={"table": f"/tables/{BY_NAME}"},
    naming_labels=("catalog",),
    may_see_kind="paddock.maintenance.access:may_see_kind",
    audit={
        "maintenance.confirm": ("confirmed", "maintenance of a table"),
    },
    checks={"catalogs": "paddock.maintenance.examining:catalogs"},
)
