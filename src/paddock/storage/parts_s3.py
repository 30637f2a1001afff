"""Uploads by parts to S3, and to everything that speaks its protocol."""

import re
from collections.abc import Sequence
from contextlib import suppress

from paddock.jobs.errors import InfrastructureError
from paddock.storage.failures import UploadGone, upload_gone
from paddock.storage.parts import Whole, etag_of_parts
from paddock.storage.s3_uploads import S3Uploads, UploadedObject

MD5 = re.compile(r"[0-9a-f]{32}(-[0-9]+)?")


class S3Parts:
    least = 5 << 20

    def __init__(self, uploads: S3Uploads) -> None:
        self._uploads = uploads

    def begin(self, key: str) -> str:
        return self._uploads.create(key)

    def send(self, key: str, upload: str, number: int, offset: int, data: bytes) -> str:
        return self._uploads.send(key, upload, number, data)

    def complete(self, key: str, upload: str, etags: Sequence[str], size: int) -> Whole:
        # Gone: the answer to an earlier call was lost, or another attempt was faster. Then all of it is there.
        with suppress(UploadGone):
            self._uploads.complete(key, upload, etags)
        found = self._uploads.find(key)
        if found is None or found.size != size or not _made_of(found, etags):
            raise upload_gone(self._uploads.url, key)
        self._abort_others(key, upload)
        return Whole(found.etag, size, 0)

    def abort(self, prefix: str, keep: str | None) -> int:
        found = [upload for upload in self._uploads.open(prefix) if f"{upload.key}/".startswith(f"{prefix}/")]
        return sum(self._uploads.abort(upload.key, upload.id) for upload in found if upload.key != keep)

    def _abort_others(self, key: str, completed: str) -> None:
        """One whose beginning was never answered. The object stands: what fails here is left to `abort`."""
        with suppress(InfrastructureError):
            for upload in self._uploads.open(key):
                if upload.key == key and upload.id != completed:
                    self._uploads.abort(key, upload.id)


def _made_of(found: UploadedObject, etags: Sequence[str]) -> bool:
    """Where the ETags are no digests, as of what a key service encrypted, the size alone speaks: a key has one content."""
    known = not found.encrypted and all(MD5.fullmatch(etag) for etag in (found.etag, *etags))
    return not known or found.etag == etag_of_parts(etags)
