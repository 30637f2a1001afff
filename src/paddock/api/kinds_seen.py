"""Who may learn of which kind: some carry the name of a database or another configured thing."""

from functools import cache

from paddock.api.tokens import Caller
from paddock.capability import capabilities, each
from paddock.config import Config


def may_see_kind(config: Config, caller: Caller, kind: str) -> bool:
    return all(may_see(config, caller, kind) for _, may_see in each("may_see_kind"))


@cache
def naming_kinds() -> tuple[str, ...]:
    """How the kinds begin that not everybody may learn of."""
    declared = [capability.naming_kinds for capability in capabilities() if capability.naming_kinds is not None]
    return tuple(begin for begins in declared for begin in ([begins] if isinstance(begins, str) else begins))


@cache
def naming_labels() -> tuple[str, ...]:
    """The labels of metrics that hold names which not everybody may learn."""
    return tuple(label for capability in capabilities() for label in capability.naming_labels)
