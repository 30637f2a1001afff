"""Instances in words, for their pages."""

from paddock.amounts import listed
from paddock.instances.model import Instance
from paddock.web.words import plural

PHASES = {
    "waiting": "Waiting for its snapshot",
    "starting": "Starting",
    "fetching": "Fetching its files",
    "schema": "Making its tables",
    "nodes": "Loading nodes",
    "edges": "Loading edges",
    "checking": "Checking what was loaded",
}


def sentence(instance: Instance) -> str:
    if instance.status == "failed":
        return "It failed, and says why below."
    if instance.status == "stopping":
        return "It is being deleted."
    if instance.status != "running":
        progress = instance.progress or {}
        phase = "waiting" if instance.status == "waiting_for_snapshot" else progress.get("phase", "starting")
        return f"{PHASES.get(phase, 'Starting')}."
    counts = instance.counts or {}
    nodes, edges = (sum((counts.get(section) or {}).values()) for section in ("nodes", "edges"))
    return f"{plural(nodes, 'node')} and {plural(edges, 'edge')}, ready to be queried."


def left_out(instance: Instance) -> str | None:
    """The edges whose ends no node has."""
    dangling = instance.dangling_edges or {}
    if not any(dangling.values()):
        return None
    parts = [f"{count:,} of {name}" for name, count in sorted(dangling.items()) if count]
    return f"Edges left out because an end is missing: {listed(parts)}."
