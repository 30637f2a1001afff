"""What a job is for, as its page shows it: the thing that it makes or takes away."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Purpose:
    """Shown by its name, or where it has none by its id."""

    what: str
    path: str
    id: UUID | str
    name: str = ""
