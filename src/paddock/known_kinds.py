"""All kinds there are: those built in, and those other packages add through the entry-point group `paddock.kinds`."""

from paddock.jobs.kinds import Kinds, load_entry_points
from paddock.jobs.probe import PROBE, PROBE_BLOCKING


def worker_kinds() -> Kinds:
    """What `paddock worker` runs. Loaded in each of its runners, so nothing of the control plane is imported here."""
    return Kinds(kind for kind in (PROBE, PROBE_BLOCKING, *load_entry_points()) if not kind.internal)


def all_kinds() -> Kinds:
    """What the control plane knows: validates, keeps policy for, and for internal ones runs."""
    from paddock.jobs import upkeep
    from paddock.jobs.webhook import WEBHOOK

    return Kinds((PROBE, PROBE_BLOCKING, WEBHOOK, *upkeep.KINDS, *load_entry_points()))
