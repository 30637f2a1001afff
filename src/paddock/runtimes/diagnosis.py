"""What a failure of what runs somewhere means, ready to be shown and decided by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError, UserMistake
from paddock.jobs.model import Budget, JsonObject

# transient: try again. larger: again with more memory. permanent: stop.
Verdict = Literal["transient", "larger", "permanent"]
# What must be over before a verdict counts: the time there is to find a node, to start on it, or to get over a bad moment.
Clock = Literal["schedule", "start", "settle"]
# Who can mend it: Paddock itself, by waiting or trying again; whoever asked for the work; whoever runs the cluster.
MendedBy = Literal["paddock", "you", "operator"]
WHO_MENDS: Mapping[str, str] = {
    "paddock": "Paddock, by trying again",
    "you": "whoever asked for it",
    "operator": "whoever runs the cluster",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """`category` is stable, `message` a sentence, `hint` what to do, `words` what the cluster itself said."""

    category: str
    verdict: Verdict
    mended_by: MendedBy
    message: str
    hint: str
    budget: Budget = "cluster"
    # None: the verdict counts at once.
    clock: Clock | None = None
    words: str = ""
    # Where: an object as "Pod namespace/name", the container in it, the node, and how its process ended.
    object: str = ""
    container: str = ""
    node: str = ""
    exit_code: int | None = None

    def as_json(self) -> JsonObject:
        shown: JsonObject = {
            "category": self.category,
            "message": self.message,
            "hint": self.hint,
            "mended_by": self.mended_by,
        }
        for name in ("words", "object", "container", "node", "exit_code"):
            if (value := getattr(self, name)) not in ("", None):
                shown[name] = value
        return shown

    def error(self) -> InfrastructureError:
        """What a handler raises for it."""
        error: InfrastructureError
        if self.verdict != "permanent":
            error = TransientResourceError(self.message, code=self.category, hint=self.hint, budget=self.budget)
        else:
            kind = UserMistake if self.mended_by == "you" else PermanentRunnerError
            error = kind(self.message, code=self.category, hint=self.hint)
        error.evidence = self.as_json()
        return error


def who_mends(diagnosis: Mapping[str, Any] | None) -> str | None:
    """In words, of a diagnosis as JSON. None: nothing failed, or whoever wrote it down did not say."""
    return WHO_MENDS.get(str((diagnosis or {}).get("mended_by")))
