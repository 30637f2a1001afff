"""The cluster, declared: what of ours runs on Kubernetes, and whose it is."""

from paddock.capability import Capability, Command, NavigationEntry

CLUSTER = Capability(
    name="cluster",
    title="Cluster",
    package="paddock.cluster",
    internal_kinds="paddock.cluster.kinds:internal_kinds",
    routers=("paddock.cluster.routes:router", "paddock.cluster.routes:admin_router"),
    pages=("paddock.cluster.pages.cluster",),
    navigation=(NavigationEntry("/cluster", "Cluster", "workers", "l"),),
    commands=(
        Command(
            "cluster",
            "paddock.cluster.commands.cluster:app",
            "What runs on Kubernetes, and whose it is.",
            "show adopt",
        ),
    ),
    alarms="paddock.cluster.alarming:clauses",
    audit={
        "cluster_adopted": ("bound", "the database to a cluster"),
    },
    places={"installation": "/cluster"},
    checks={"cluster": "paddock.cluster.examining:cluster"},
)
