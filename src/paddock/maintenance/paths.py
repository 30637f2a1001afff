"""Which file a location means, however it is written: any doubt must keep a file.

Metadata may say s3a:// where the store says s3://, a bucket by another name, a doubled slash, a blank as %20. So a file is its
path alone: no scheme, no bucket, slashes collapsed, decoded. Two files that are one by this rule are both kept when one is needed.
"""

import hashlib
import re
from array import array
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?")
SLASHES = re.compile(r"/{2,}")
# Schemes that mean one kind of store.
FAMILIES: Mapping[str, frozenset[str]] = {
    "s3": frozenset({"s3", "s3a", "s3n"}),
    "gs": frozenset({"gs", "gcs"}),
    "az": frozenset({"az", "azure", "adl", "abfs", "abfss", "wasb", "wasbs"}),
}


def path_of(location: str) -> str:
    return SLASHES.sub("/", "/" + unquote(SCHEME.sub("", location, count=1)).lstrip("/"))


def key_of(location: str) -> int:
    digest = hashlib.blake2b(path_of(location).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


class Paths:
    """A set of files as 64-bit hashes of their paths: a million of them are 8 MB. Two paths with one hash are taken for one,
    which keeps a file that might go."""

    def __init__(self) -> None:
        self._sorted = array("Q")
        self._new: set[int] = set()

    def add(self, location: str) -> None:
        self._new.add(key_of(location))
        if len(self._new) > 200_000:
            self._settle()

    def __contains__(self, location: str) -> bool:
        key = key_of(location)
        if key in self._new:
            return True
        at = bisect_left(self._sorted, key)
        return at < len(self._sorted) and self._sorted[at] == key

    def __len__(self) -> int:
        self._settle()
        return len(self._sorted)

    def _settle(self) -> None:
        known = (key for key in self._new if not self._has(key))
        self._sorted = array("Q", sorted([*self._sorted, *known]))
        self._new.clear()

    def _has(self, key: int) -> bool:
        at = bisect_left(self._sorted, key)
        return at < len(self._sorted) and self._sorted[at] == key


def overlapping(one: str, other: str) -> bool:
    """Whether one place is the other, or inside it. Buckets are not compared: in doubt they are the same."""
    first, second = (path_of(location).rstrip("/") + "/" for location in (one, other))
    return first.startswith(second) or second.startswith(first)


def family_of(location: str) -> str:
    """`file`, `s3`, `gs`, `az`, or whatever other scheme it has."""
    scheme = urlsplit(location).scheme.lower() if "://" in location or location.startswith("file:") else "file"
    return next((name for name, schemes in FAMILIES.items() if scheme in schemes), scheme)


def overlapping_stores(one: str, other: str) -> bool:
    """The same of two places whose stores are known: by the kind of store and the bucket, whatever scheme, endpoint or account
    is said with it."""
    return _bucket_of(one) == _bucket_of(other) and overlapping(_resolved(one), _resolved(other))


def _resolved(location: str) -> str:
    """A folder may be reached by a link."""
    if family_of(location) == "file":
        return str(Path(path_of(location)).resolve())
    return location.partition("?")[0]  # what follows says how the store is reached


def _bucket_of(location: str) -> tuple[str, str]:
    family = family_of(location)
    return family, "" if family == "file" else urlsplit(location).netloc.partition("@")[0]
