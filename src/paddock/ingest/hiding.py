"""What a command may print and nobody may read: the values of its secrets, hidden in logs and errors.

On the worker's machine the values are known. On Kubernetes only the pod of the step knows them. Its container `fetch` tells the
worker how long each is and its keyed sum, and the worker hides each piece of a text that has such a sum. The key is the token of
the step: who reads the store, where the sums stand, cannot try guesses against them.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import accumulate
from operator import sub

import orjson

Hide = Callable[[str], str]
# Shorter values stand in many words: hidden, they would leave no line readable.
LEAST_HIDDEN = 4
INSTEAD = b"***"
LEFT_OUT = "(left out: what the step's secrets look like is not known, and they may stand here)"


def hidden_lines(values: Iterable[str]) -> list[bytes]:
    """A text of several lines is printed in several. The longest come first: one may be the beginning of another."""
    lines = {line.strip().encode() for value in values for line in value.splitlines()}
    return sorted((line for line in lines if len(line) >= LEAST_HIDDEN), key=len, reverse=True)


def without(line: bytes, hidden: Sequence[bytes]) -> bytes:
    for value in hidden:
        line = line.replace(value, INSTEAD)
    return line


def hiding(values: Iterable[str]) -> Hide:
    """The same replacement as in the log, for what a command says in another way."""
    hidden = hidden_lines(values)

    def hide(text: str) -> str:
        return without(text.encode("utf-8", "replace"), hidden).decode("utf-8", "replace")

    return hide


class _Sums:
    """`digest` decides. `weight` is the sum of a keyed number for each byte: it is the same wherever the bytes stand, so that
    all pieces of a text are looked at without a digest of each."""

    def __init__(self, token: str) -> None:
        self._key = blake2b(token.encode(), person=b"hidden values").digest()
        self.weights = [int.from_bytes(self._sum(bytes([byte]), 4)) for byte in range(256)]

    def _sum(self, text: bytes, size: int) -> bytes:
        return blake2b(text, key=self._key, digest_size=size).digest()

    def weight(self, text: bytes) -> int:
        return sum(self.weights[byte] for byte in text)

    def digest(self, text: bytes) -> str:
        return self._sum(text, 16).hex()


def sums_of(values: Iterable[str], token: str) -> bytes:
    """What may be told of the values: of each line its length, its weight and its digest."""
    sums = _Sums(token)
    return orjson.dumps([(len(line), sums.weight(line), sums.digest(line)) for line in hidden_lines(values)])


def hiding_by_sums(told: bytes | None, token: str) -> Hide:
    """Hides what `sums_of` told of. None: nobody was told, so nothing is shown."""
    if told is None:
        return lambda _: LEFT_OUT
    sums = _Sums(token)
    # By length, the digests by weight. The longest come first, as above.
    known: dict[int, dict[int, set[str]]] = {}
    for length, weight, digest in orjson.loads(told):
        known.setdefault(length, {}).setdefault(weight, set()).add(digest)

    def hide(text: str) -> str:
        found = text.encode("utf-8", "replace")
        for length, digests in known.items():
            found = _without_pieces(found, length, digests, sums)
        return found.decode("utf-8", "replace")

    return hide


def _without_pieces(text: bytes, length: int, digests: dict[int, set[str]], sums: _Sums) -> bytes:
    running = [0, *accumulate(map(sums.weights.__getitem__, text))]
    kept, end = list[bytes](), 0
    for at, weight in enumerate(map(sub, running[length:], running)):
        if weight in digests and at >= end and sums.digest(text[at : at + length]) in digests[weight]:
            kept += [text[end:at], INSTEAD]
            end = at + length
    return b"".join([*kept, text[end:]])
