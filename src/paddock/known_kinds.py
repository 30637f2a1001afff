"""All kinds there are: the core's, each capability's, and those other packages add through the entry-point group
`paddock.kinds`."""

from paddock.capability import each, leaving_out
from paddock.config import Config, load
from paddock.jobs.kinds import Kinds, add_entry_points
from paddock.jobs.probe import PROBE, PROBE_BLOCKING
from paddock.worker.resources import Factories, Factory


def worker_kinds(config: Config | None = None) -> Kinds:
    """What `paddock worker` runs. Loaded in each of its runners, so nothing of the control plane is imported here."""
    config = config or load()
    known = Kinds((PROBE, PROBE_BLOCKING))
    for capability, kinds in each("kinds"):
        with leaving_out(capability):
            known.extend(kinds(config))
    add_entry_points(known)
    return Kinds(kind for kind in known if not kind.internal)


def worker_resources() -> Factories:
    """What the handlers above need, built in a runner on first use."""
    known: dict[type, Factory] = {}
    for capability, resources in each("resources"):
        with leaving_out(capability):
            known.update(resources())
    return known


def all_kinds(config: Config | None = None) -> Kinds:
    """What the control plane knows: validates, keeps policy for, and for internal ones runs. Kinds of configured things,
    like databases, are known by the configuration that names them."""
    from paddock.jobs import upkeep
    from paddock.jobs.webhooks.delivering import WEBHOOK

    config = config or Config()
    known = Kinds((PROBE, PROBE_BLOCKING, WEBHOOK, *upkeep.KINDS))
    for field in ("kinds", "internal_kinds"):
        for capability, kinds in each(field):
            with leaving_out(capability):
                known.extend(kinds(config))
    add_entry_points(known)
    return known
