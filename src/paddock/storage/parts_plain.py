"""Uploads by parts where parts cannot become one object: they stay objects, `key/000001` and so on.

`key/open-<upload>` is there while the upload is. Who sends a part looks for it first, so that one who is late leaves
nothing behind, unless the upload ends between his look and his part: then that part is one object too many, which no
reader asks for and which goes with its prefix.
"""

import re
import uuid
from collections.abc import Sequence

from paddock.storage.failures import upload_gone
from paddock.storage.parts import Whole, etag_of, etag_of_parts, part_key
from paddock.storage.store import Backend

OURS = re.compile(r"(?P<key>.+)/(?:(?P<open>open-[0-9a-f]{32})|[0-9]{6})")


class PlainParts:
    least = 1

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def begin(self, key: str) -> str:
        upload = uuid.uuid4().hex
        self._backend.put(_mark(key, upload), b"")
        return upload

    def send(self, key: str, upload: str, number: int, offset: int, data: bytes) -> str:
        if self._backend.size(_mark(key, upload)) is None:
            raise upload_gone(self._backend.url, key)
        self._backend.put(part_key(key, number), data)
        return etag_of(data)

    def complete(self, key: str, upload: str, etags: Sequence[str], size: int) -> Whole:
        """All its parts are there: that makes it whole, and is true as well when it is asked again."""
        found = {entry.key: entry.size for entry in self._backend.entries(key, unfinished=False)}
        parts = [part_key(key, number) for number in range(1, len(etags) + 1)]
        if sum(found.get(part, 0) for part in parts) != size or not found.keys() >= {*parts}:
            raise upload_gone(self._backend.url, key)
        self._backend.delete([other for other in found if other not in parts])
        return Whole(etag_of_parts(etags), size, len(etags))

    def abort(self, prefix: str, keep: str | None) -> int:
        found = self._below(prefix)
        others = {match["key"] for match in found if match["open"]} - {keep}
        for key in others:
            # The mark goes after the parts, or a kill in between would leave parts that nobody knows to be an upload's;
            # then once more what came meanwhile.
            self._backend.delete([match[0] for match in found if match["key"] == key and not match["open"]])
            self._backend.delete([match[0] for match in found if match["key"] == key and match["open"]])
            self._backend.delete([match[0] for match in self._below(key)])
        return len(others)

    def _below(self, prefix: str) -> list[re.Match[str]]:
        entries = self._backend.entries(prefix, unfinished=False)
        return [match for entry in entries if (match := OURS.fullmatch(entry.key))]


def _mark(key: str, upload: str) -> str:
    return f"{key}/open-{upload}"
