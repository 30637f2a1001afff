"""The digest of a file, over parts of one size: `sha256(previous + sha256(part))`, beginning with nothing.

It can go on in another process from the end of any part, where the state of a digest over all bytes cannot be kept.
"""

import hashlib
from typing import BinaryIO

_PIECE = 1 << 20


class PartDigest:
    """Of bytes as they come. The last part may be shorter; a file without bytes is one empty part."""

    def __init__(self, part_size: int, before: str = "") -> None:
        """`before` is the digest of all earlier parts."""
        self._part_size, self._before = part_size, before
        self._part, self._filled = hashlib.sha256(), 0

    def add(self, data: bytes | memoryview) -> None:
        left = memoryview(data)
        while left:
            piece = left[: self._part_size - self._filled]
            self._part.update(piece)
            self._filled += len(piece)
            if self._filled == self._part_size:
                self._before, self._part, self._filled = self.value, hashlib.sha256(), 0
            left = left[len(piece) :]

    @property
    def value(self) -> str:
        if not self._filled and self._before:
            return self._before
        return _linked(self._before, self._part.digest())


def chained(before: str, data: bytes) -> str:
    return _linked(before, hashlib.sha256(data).digest())


def chain_of(file: BinaryIO, part_size: int, size: int | None = None) -> str:
    """Of so many bytes from here on, or of all to the end of the file."""
    digest, left = PartDigest(part_size), size
    while piece := file.read(_PIECE if left is None else min(_PIECE, left)):
        digest.add(piece)
        left = None if left is None else left - len(piece)
    return digest.value


def _linked(before: str, part: bytes) -> str:
    return hashlib.sha256(bytes.fromhex(before) + part).hexdigest()
