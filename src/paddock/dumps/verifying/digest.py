"""The digest over the parts of a file, as who wrote it made it."""

from typing import BinaryIO

from paddock.dumps.writing import chained


def chain_of(file: BinaryIO, part_size: int, parts: int | None = None) -> str:
    """From here on; over so many parts, or to the end of the file. One that is empty is one empty part."""
    digest, seen = "", 0
    while parts is None or seen < parts:
        data = file.read(part_size)
        if not data and seen:
            return digest
        digest, seen = chained(digest, data), seen + 1
    return digest
