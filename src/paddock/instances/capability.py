"""Instances, declared: graphs that are asked in Cypher."""

from paddock.capability import Capability, Command, NavigationEntry

INSTANCES = Capability(
    name="instances",
    title="Instances",
    package="paddock.instances",
    settings="paddock.instances.settings:InstanceSettings",
    internal_kinds="paddock.instances.kinds:internal_kinds",
    routers=(
        "paddock.instances.routes:router",
        "paddock.instances.query_routes:router",
        "paddock.instances.algorithm_routes:router",
        "paddock.instances.sharing_routes:router",
    ),
    state="paddock.instances.watching:by_status",
    pages=("paddock.instances.pages.querying", "paddock.instances.pages.instances"),
    navigation=(NavigationEntry("/instances", "Instances", "instances", "i"),),
    commands=(
        Command(
            "instances",
            "paddock.instances.commands:app",
            "Graphs that are asked in Cypher.",
            "create list show query schema algo logs events extend reopen share delete",
        ),
    ),
    alongside="paddock.instances.beginning:alongside",
    finder="paddock.instances.search:find",
    places={"instance": "/instances/{}"},
    made_for="paddock.instances.pages.purposes:made_for",
    around="paddock.instances.around:around",
    audit={
        "instance_created": ("created", "an instance"),
        "instance_changed": ("changed", "an instance"),
        "instance_shared": ("shared", "an instance"),
        "instance_unshared": ("stopped sharing", "an instance"),
        "instance_reopened": ("reopened", "an instance"),
        "instance_stopping": ("stopped", "an instance"),
        "instance_deleted": ("deleted", "an instance"),
        "algorithm_cancelled": ("cancelled", "an algorithm"),
        "query_saved": ("saved", "a query"),
        "saved_query_deleted": ("deleted", "a saved query"),
    },
    checks={"instances": "paddock.instances.examining:instances"},
)
