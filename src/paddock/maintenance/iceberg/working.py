"""What the actions of one attempt share: the table, the fence on it, and what is saved.

The order that protects a table: the attempt commits its fence tag, then saves (fenced), and only then works. Whoever stood still
before that save stops at it and takes its tag back; whoever stood still after it lost its tag to the next attempt.
"""

from collections.abc import Callable
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, StaleAttempt, TransientResourceError
from paddock.jobs.turn import Turn
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import committing
from paddock.maintenance.iceberg.committing import TRIES, Conflict
from paddock.maintenance.iceberg.opening import load_same, translated
from paddock.maintenance.model import FENCE_PREFIX, MaintenancePayload, Outcome


class Work:
    def __init__(self, turn: Turn[MaintenancePayload], settings: CatalogSettings, catalog: Catalog) -> None:
        self.turn = turn
        self.payload = turn.payload
        self.settings = settings
        self.catalog = catalog
        # What is saved: `outcomes` of the actions that ended, `step`, how far the one at work is, and `remote`, what ends a
        # statement that another engine may be at.
        self.state: dict[str, Any] = {"outcomes": [], "step": None, "remote": None, **turn.saved}
        self.fenced = settings.fence and not turn.payload.dry_run
        self.tag = f"{FENCE_PREFIX}{turn.attempt_id}" if self.fenced else None

    @property
    def name(self) -> str:
        """Of the files that this attempt writes."""
        return f"{self.turn.id}-{self.turn.attempt_id}"

    def load(self) -> Table:
        return load_same(self.catalog, self.payload.table, self.payload.uuid)

    def save(self, *, progress: bool = True) -> None:
        """Fenced: raises `StaleAttempt` once the job has moved on, and is also where a cancel is seen."""
        self.turn.save_blocking(self.state, progress=progress)

    def step(self, **fields: Any) -> None:
        self.state["step"] = {**(self.state["step"] or {}), **fields}

    def ended(self, outcome: Outcome) -> None:
        self.state["outcomes"] = [*self.state["outcomes"], outcome.json_object()]
        self.state["step"] = None
        self.save()

    def turn_fence(self) -> None:
        """Tag, then save, then work. Again where a commit found the tag gone: a late attempt may have turned the fence before it
        stopped at its own save."""
        if self.tag is None:
            self.save(progress=False)
            return
        self.retried(lambda table: committing.turn_fence(self.catalog, table, self.tag or ""))
        try:
            self.save(progress=False)
        except StaleAttempt:
            self.remove_tag()
            raise

    def remove_tag(self) -> None:
        if self.tag is not None:
            self.retried(lambda table: committing.remove_tags(self.catalog, table, [self.tag or ""]))

    def after_conflict(self, table: Table) -> None:
        """Before a commit is tried again: where the tag is gone, whoever is no longer the holder stops here."""
        if self.tag is not None and self.tag not in table.metadata.refs:
            self.turn_fence()

    def retried(self, change: Callable[[Table], None]) -> None:
        for left in reversed(range(TRIES)):
            table = self.load()
            try:
                with translated(self.payload.table.catalog, Conflict):
                    change(table)
                return
            except Conflict as conflict:
                if not left:
                    raise conflict_error(self.payload, conflict) from conflict


def conflict_error(payload: MaintenancePayload, conflict: Conflict) -> TransientResourceError:
    return TransientResourceError(
        f"{payload.table} changed under each of {TRIES} commits: {conflict}",
        code="commit_conflict",
        hint="Somebody else writes to it just now; it is tried again later.",
        budget="cluster",
    )


def is_lasting(problem: Exception) -> bool:
    """Whether an action failed for good. What may pass is the job's to try again, from what is saved."""
    return isinstance(problem, PermanentRunnerError) or not isinstance(problem, InfrastructureError)
