"""Dumps, declared: a whole database as one file, in slices that survive any kill."""

from datetime import timedelta

from paddock.capability import BY_NAME, Capability, Command, Grant, NavigationEntry, Schedule

DUMPS = Capability(
    name="dumps",
    title="Dumps",
    package="paddock.dumps",
    settings="paddock.dumps.settings:DumpSettings",
    kinds="paddock.dumps.kinds:dump_kinds",
    internal_kinds="paddock.dumps.kinds:internal_kinds",
    resources="paddock.dumps.resources:resources",
    unreachable_kinds="paddock.dumps.kinds:out_of_reach",
    worker_chore="paddock.dumps.old_copies:remove_old_copies",
    routers=("paddock.dumps.routes:router",),
    pages=("paddock.dumps.pages.dumps_new", "paddock.dumps.pages.dumps"),
    navigation=(NavigationEntry("/dumps", "Dumps", "dumps", "d"),),
    commands=(
        Command("dump", "paddock.dumps.commands.dump:app", "A whole database as one file.", "verify", alone="DATABASE"),
        Command(
            "dumps", "paddock.dumps.commands.dumps:app", "The dumps there are.", "list show watch download cancel rm"
        ),
    ),
    schedules=(Schedule("collect-dump-leftovers", "collect_dump_leftovers", timedelta(hours=1)),),
    state="paddock.dumps.expiring:by_status",
    grants=(Grant("databases", "database", "Databases", "Which it may dump."),),
    granted="paddock.dumps.databases:granted",
    naming_kinds="dump:",
    may_see_kind="paddock.dumps.databases:may_see_kind",
    finder="paddock.dumps.search:find",
    schedulable={"dump": "paddock.dumps.pages.scheduling:of_dump"},
    places={"dump": f"/dumps/{BY_NAME}"},
    made_for="paddock.dumps.pages.purposes:made_for",
    audit={
        "delete": ("deleted", "a dump"),
    },
    checks={"databases": "paddock.dumps.examining:databases"},
    foreign_paths="/export/",
    cors_origins="paddock.dumps.databases:cors_origins",
)
