"""All kinds there are: those built in, and those other packages add through the entry-point group `paddock.kinds`."""

from paddock.config import Config, load
from paddock.dumps.kinds import dump_kinds
from paddock.exports.kinds import DESCRIBE, EXPORT
from paddock.jobs.kinds import Kinds, load_entry_points
from paddock.jobs.probe import PROBE, PROBE_BLOCKING
from paddock.worker.resources import Factories

FOR_WORKERS = (PROBE, PROBE_BLOCKING, EXPORT, DESCRIBE)


def worker_kinds(config: Config | None = None) -> Kinds:
    """What `paddock worker` runs. Loaded in each of its runners, so nothing of the control plane is imported here."""
    dumps = dump_kinds(config or load())
    return Kinds(kind for kind in (*FOR_WORKERS, *dumps, *load_entry_points()) if not kind.internal)


def worker_resources() -> Factories:
    """What the handlers above need, built in a runner on first use."""
    from paddock.dumps.workshop import DumpWorkshop
    from paddock.exports.workshop import Workshop

    return {Workshop: Workshop.from_environment, DumpWorkshop: DumpWorkshop.from_environment}


def all_kinds(config: Config | None = None) -> Kinds:
    """What the control plane knows: validates, keeps policy for, and for internal ones runs. Those of databases are
    known by the configuration that names them."""
    from paddock.dumps import callbacks, scheduled
    from paddock.dumps import removing as dump_removing
    from paddock.exports import removing
    from paddock.exports.scheduled import SCHEDULED
    from paddock.jobs import upkeep
    from paddock.jobs.webhook import WEBHOOK

    dumps = () if config is None else dump_kinds(config)
    inside = (WEBHOOK, SCHEDULED, *removing.KINDS, scheduled.SCHEDULED, callbacks.CALLBACK, *dump_removing.KINDS)
    return Kinds((*FOR_WORKERS, *dumps, *inside, *upkeep.KINDS, *load_entry_points()))
