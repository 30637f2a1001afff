"""Which event types there are, and the sentence for one that is not among them: a subscription to a misspelt type would
wait for ever."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

ALL = "*"


def families(types: Iterable[str]) -> list[str]:
    return sorted({f"{type.partition('.')[0]}.*" for type in types})


def unknown_type(type: str, known: Mapping[str, str], *, wildcards: bool = False) -> str | None:
    """What is said to whoever names it; None: it is known. A subscription may name a family or all of them too."""
    names = [*known, *(families(known) if wildcards else ())]
    if type in names or (wildcards and type == ALL):
        return None
    close = get_close_matches(type[:200], names, 1)
    meant = f" Did you mean '{close[0]}'?" if close else ""
    return f"There is no event type '{type[:100]}'.{meant} `paddock events types` lists them."
