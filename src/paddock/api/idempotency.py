"""`Idempotency-Key`: the same key and body get the same answer, from the route and owner they came from.

Whatever makes the jobs keeps the key in its own transaction: both are there after a crash, or neither.
"""

import re
from typing import Annotated, Any

from fastapi import Header

from paddock.api.bodies import canonical_hash
from paddock.api.documenting import IDEMPOTENCY_DESCRIPTION
from paddock.api.errors import invalid_field
from paddock.api.tokens import Caller
from paddock.jobs.enqueueing import IdempotencyKey

PATTERN = re.compile(r"[\x21-\x7e]{1,200}\Z")

KeyHeader = Annotated[str | None, Header(alias="Idempotency-Key", description=IDEMPOTENCY_DESCRIPTION)]


def key_of(caller: Caller, route: str, key: str | None, body: Any) -> IdempotencyKey | None:
    if key is None:
        return None
    if not PATTERN.match(key):
        raise invalid_field("Idempotency-Key", "It has 1 to 200 visible ASCII characters.")
    return IdempotencyKey(caller.owner, route, key, canonical_hash(body))
