"""What a job is about: one short line that stands in lists and that free text finds.

It is made once, when the job is made, and kept with it. Whoever may see a job sees it, as they see the payload; so what the
logs would mask is masked here too.
"""

import structlog
from pydantic import BaseModel

from paddock.jobs.kinds import Kind
from paddock.jobs.values import clean_text
from paddock.log import SECRET_NAME, scrub

log = structlog.get_logger()

LONGEST = 200
# Of a text that is longer no more is looked at: a query may have megabytes.
LOOKED_AT = 4_000


def about(kind: Kind, payload: BaseModel) -> str | None:
    """None where the kind does not say. Whatever goes wrong with it is no reason to refuse a job."""
    if kind.about is None:
        return None
    try:
        made = _named(payload, kind.about) if isinstance(kind.about, str) else kind.about(payload)
        text = "" if made is None else str(made)
    except Exception as problem:
        log.warning("no_about", kind=kind.name, error=f"{type(problem).__name__}: {problem}")
        return None
    line = scrub(" ".join(text[:LOOKED_AT].split()), limit=LONGEST + 1)
    return clean_text(line, LONGEST) or None


def _named(payload: BaseModel, field: str) -> object:
    return None if SECRET_NAME.search(field) else getattr(payload, field)
