"""What the button "Schedule…" of a source fills in."""

from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.ingest.service import visible_source
from paddock.web.planning import Planned, name_of


async def of_source(plane: ControlPlane, caller: Caller, id: str) -> Planned:
    visible_source(plane, caller, id)
    words = [("Runs", f"the source {id}"), ("From", "what is published, on to what is new")]
    return Planned("scheduled_ingest", {"source": id}, name_of("ingest", id), words)
