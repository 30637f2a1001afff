"""Places in the stream, as the outside sees them: opaque.

A position counts every job's changes, so it would tell each watcher how much the others do. It is hidden under a fresh
pad for each place and signed: two places tell nothing by their difference, and none can be made up to try where the
stream is by now. A place is worth nothing in another process, nor once changes may have been missed (`epoch`).
"""

import hashlib
import secrets

from paddock.jobs.changes import Changes
from paddock.jobs.model import JobId

PART = 8


class Places:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._key = secrets.token_bytes(32)

    def now(self) -> str:
        return self.at(self._changes.position)

    def at(self, position: int) -> str:
        salt = secrets.token_bytes(PART)
        hidden = _xor(position.to_bytes(PART, "big"), self._digest(b"pad", salt))
        return (salt + hidden + self._digest(b"sign", salt + hidden)).hex()

    def since(self, place: str) -> frozenset[JobId] | None:
        """The jobs changed after that place; None when that cannot be told."""
        try:
            content = bytes.fromhex(place)
        except ValueError:
            return None
        salt, hidden, signature = content[:PART], content[PART : 2 * PART], content[2 * PART :]
        if not secrets.compare_digest(signature, self._digest(b"sign", salt + hidden)):
            return None
        position = int.from_bytes(_xor(hidden, self._digest(b"pad", salt)), "big")
        return self._changes.since(self._changes.epoch, position)

    def _digest(self, purpose: bytes, content: bytes) -> bytes:
        spoken = content + self._changes.epoch.encode()
        return hashlib.blake2b(spoken, digest_size=PART, key=self._key, person=purpose).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
