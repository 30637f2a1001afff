"""A store that is a bucket: S3, Google Cloud Storage, Azure.

obstore's blocking calls run on threads of ours: its asynchronous ones may abort a process that exits soon after them.
Every request is bounded: five seconds to connect, thirty to answer, a few repetitions within thirty more. So a store
that cannot be reached is told in about a minute, and a big object goes by parts and ranges.

A `mode=` makes obstore send one PUT: only `create` and `replace` use it. S3 cannot make a multipart upload conditional, which
nothing here needs: a draft's names are never used twice. An upload that fails or is cancelled is aborted. One whose
process is killed leaves parts: on S3 they are seen and aborted by `paddock.storage.s3_uploads`, where Paddock is allowed
to list uploads; Azure forgets them after a week; on GCS only a lifecycle rule of the bucket removes them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from os.path import commonpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from paddock.config import ConfigError
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError
from paddock.storage.buckets import Bucket
from paddock.storage.failures import denied, incomplete, no_bucket, not_found, unavailable
from paddock.storage.store import CHUNK, Backend, Removed, Seen, Source, StoredObject

if TYPE_CHECKING:
    from obstore import UpdateVersion

    from paddock.storage.s3_uploads import OpenUpload, S3Uploads

# Providers allow 10,000 parts; half of that leaves room for a source that is longer than it said.
MOST_PARTS = 5_000
# Parts of one upload under way at a time: its memory is this many chunks, and what its source gives at a time.
PARTS_AT_ONCE = 2
DELETED_AT_ONCE = 1_000
# S3 copies up to 5 GiB in one request, and only the bytes count: larger ones go through this machine.
LARGEST_COPY = 5 << 30

CLIENT: dict[str, Any] = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=30)}
RETRY: Any = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=30),
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=5), "base": 2},
}
STORES: Mapping[str, type[S3Store] | type[GCSStore] | type[AzureStore]] = {
    "s3": S3Store,
    "gs": GCSStore,
    "az": AzureStore,
}
MISSING_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|specified bucket does not exist|NoSuchContainer")
# Where a cloud's machines ask for their identity: the last thing tried when there are no credentials.
METADATA = "//169.254.169.254/"
PLAIN = re.compile(r"[A-Za-z0-9._~/-]+")
# A store that speaks S3 but not all of it.
UNKNOWN_CONDITION = re.compile(r"\b501 Not Implemented")
STATUS = re.compile(r"\b([45]\d\d) [A-Z][A-Za-z ]+")
TIMEOUT = re.compile(r"TimedOut|timed out|kind: Timeout")
CODE = re.compile(r"<Code>(\w{1,64})</Code>")


class RemoteBackend:
    local: Path | None = None

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.url = bucket.url
        self._prefix = bucket.prefix
        config = bucket.config()
        self._identity = (bucket.scheme, bucket.name, tuple(sorted(config.items())))
        client: Any = {**CLIENT, "allow_http": bucket.endpoint.startswith("http://")}
        if bucket.certificates:
            client["root_certificate"] = Path(bucket.certificates).read_bytes()
        try:
            self._store = STORES[bucket.scheme](bucket.name, config=config, client_options=client, retry_config=RETRY)  # type: ignore[arg-type]
        except BaseError as problem:
            # The first line has no values in it.
            reason = str(problem).partition("\n")[0]
            raise ConfigError(f"The store {self.url} is not configured as it should be: {reason}") from None

    @cached_property
    def uploads(self) -> "S3Uploads":
        """What obstore cannot ask S3 for. Imported only here: botocore is a large library."""
        from paddock.storage.s3_uploads import S3Uploads

        return S3Uploads(self.bucket)

    def put(self, key: str, data: bytes) -> None:
        with self._failures(key, writing=True):
            obstore.put(self._store, self._prefix + key, data, use_multipart=False)

    def create(self, key: str, data: bytes) -> bool:
        with self._failures(key, writing=True):
            try:
                obstore.put(self._store, self._prefix + key, data, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def replace(self, key: str, data: bytes, tag: Mapping[str, str]) -> bool:
        with self._failures(key, writing=True):
            try:
                obstore.put(self._store, self._prefix + key, data, mode=cast("UpdateVersion", dict(tag)))
            except PreconditionError:
                return False
            except GenericError as problem:
                if not UNKNOWN_CONDITION.search(str(problem)):
                    raise
                obstore.put(self._store, self._prefix + key, data, use_multipart=False)
        return True

    def seen(self, key: str) -> Seen | None:
        with self._failures(key):
            try:
                found = obstore.get(self._store, self._prefix + key)
            except FileNotFoundError:
                return None
            marks = {"e_tag": found.meta["e_tag"], "version": found.meta["version"]}
            return Seen(bytes(found.bytes()), {name: mark for name, mark in marks.items() if mark is not None})

    def write(self, key: str, source: Source, size: int) -> None:
        parts = _Parts(source, size, max(CHUNK, -(-size // MOST_PARTS)))
        try:
            with self._failures(key, writing=True):
                self._send(self._prefix + key, parts)
        except InfrastructureError:
            # Whatever obstore made of it: what went wrong in the source is raised as it was.
            if parts.problem is not None:
                raise parts.problem from None
            raise

    def _send(self, path: str, parts: "_Parts") -> None:
        if parts.size <= CHUNK:
            obstore.put(self._store, path, b"".join(parts), use_multipart=False)
            return
        obstore.put(
            self._store,
            path,
            iter(parts),
            use_multipart=True,
            chunk_size=parts.length,
            max_concurrency=PARTS_AT_ONCE,
        )

    def link(self, key: str, path: Path) -> bool:
        return False

    def copy(self, key: str, other: Backend, other_key: str) -> bool:
        if not isinstance(other, RemoteBackend) or other._identity != self._identity:
            return False
        if (self.size(key) or 0) > LARGEST_COPY:
            return False
        with self._failures(key):
            obstore.copy(self._store, self._prefix + key, other._prefix + other_key)
        return True

    def read_range(self, key: str, start: int, length: int) -> bytes:
        with self._failures(key):
            try:
                return bytes(obstore.get_range(self._store, self._prefix + key, start=start, length=length))
            except GenericError:
                # A range behind the end: each store has its own words for it.
                size = self.size(key)
                if size is not None and start >= size:
                    return b""
                raise

    def size(self, key: str) -> int | None:
        found = self.entry(key)
        return None if found is None else found.size

    def entry(self, key: str) -> StoredObject | None:
        with self._failures(key):
            try:
                found = obstore.head(self._store, self._prefix + key)
            except FileNotFoundError:
                return None
        return StoredObject(key, found["size"], found["last_modified"], found["e_tag"])

    def entries(self, prefix: str, unfinished: bool) -> Iterator[StoredObject]:
        with self._failures(prefix):
            for batch in obstore.list(self._store, prefix=(self._prefix + prefix) or None):
                for found in batch:
                    yield StoredObject(found["path"].removeprefix(self._prefix), found["size"], found["last_modified"])
        if unfinished:
            for upload in self._open_uploads(prefix and f"{prefix}/"):
                yield StoredObject(upload.key, 0, upload.began)

    def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), DELETED_AT_ONCE):
            paths = [self._prefix + key for key in keys[start : start + DELETED_AT_ONCE]]
            with self._failures(keys[start]):
                try:
                    obstore.delete(self._store, paths)
                except FileNotFoundError:
                    # Azure and GCS name the first one that is missing and may have left the rest.
                    self._delete_singly(paths)

    def delete_unfinished(self, keys: Sequence[str]) -> None:
        wanted = {*keys}
        for upload in [*self._open_uploads(commonpath(keys))] if keys else ():
            if upload.key in wanted:
                self.uploads.abort(upload.key, upload.id)

    def delete_below(self, prefix: str, older_than: datetime | None) -> Removed:
        found = [
            entry
            for entry in self.entries(prefix, unfinished=False)
            if older_than is None or entry.modified < older_than
        ]
        self.delete([entry.key for entry in found])
        aborted = 0
        for upload in [*self._open_uploads(f"{prefix}/")]:
            if older_than is None or upload.began < older_than:
                aborted += self.uploads.abort(upload.key, upload.id)
        return Removed(len(found) + aborted, sum(entry.size for entry in found))

    def needs_lifecycle_rule(self) -> bool:
        if self.bucket.scheme != "s3":
            return self.bucket.scheme == "gs"
        try:
            next(self.uploads.open(""), None)
        except PermanentRunnerError as refused:
            if refused.code != "store_denied":
                raise
            return True
        return False

    def _open_uploads(self, prefix: str) -> "Iterator[OpenUpload]":
        if self.bucket.scheme != "s3":
            return
        try:
            yield from self.uploads.open(prefix)
        except PermanentRunnerError as refused:
            # To list uploads is a right of its own, and not every store can. Then they are the lifecycle rule's.
            if refused.code != "store_denied":
                raise

    def sign(self, key: str, expires: timedelta) -> str | None:
        # GCS: obstore would ask Google's servers. Azure: it signs the encoded path, where the decoded one is checked.
        if self.bucket.scheme == "gs" or (self.bucket.scheme == "az" and not PLAIN.fullmatch(self._prefix + key)):
            return None
        with self._failures(key):
            return obstore.sign(self._store, "GET", self._prefix + key, expires)

    def _delete_singly(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                obstore.delete(self._store, path)
            except FileNotFoundError as problem:
                if MISSING_BUCKET.search(str(problem)):
                    raise

    @contextmanager
    def _failures(self, key: str, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError, ValueError) as problem:
            raise self._classified(key, problem, writing) from None

    def _classified(self, key: str, problem: Exception, writing: bool) -> InfrastructureError:
        text = str(problem)
        missing = isinstance(problem, FileNotFoundError)
        # Not every store says what is missing; to a write it can only be the bucket.
        if MISSING_BUCKET.search(text) or (missing and writing):
            return no_bucket(self.url)
        if missing:
            return not_found(self.url, key)
        if METADATA in text:
            return unavailable(
                self.url, "there are no credentials in the environment, and this machine has none to give"
            )
        reason = _reason(text)
        # A listing that is refused is only a general error to obstore.
        if isinstance(problem, (PermissionDeniedError, UnauthenticatedError)) or reason.startswith(("401 ", "403 ")):
            return denied(self.url, reason)
        return unavailable(self.url, reason)


class _Parts:
    """What a source gives: obstore makes parts of one length of it, without a copy. It remembers what went wrong in it."""

    def __init__(self, source: Source, size: int, length: int) -> None:
        self._source, self.size, self.length = source, size, length
        self.problem: BaseException | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._parts()
        except GeneratorExit:
            raise  # the upload failed and wants no more
        except BaseException as problem:
            self.problem = problem
            raise

    def _parts(self) -> Iterator[bytes]:
        left = self.size
        while left > 0:
            part = self._source(min(self.length, left))
            if not part:
                raise incomplete("What was being uploaded ended too early.")
            left -= len(part)
            yield part


def _reason(text: str) -> str:
    """The status and the code of the answer, nothing else: addresses in the text may carry signatures."""
    found = [
        match.group(0 if pattern is STATUS else 1) for pattern in (STATUS, CODE) if (match := pattern.search(text))
    ]
    if found:
        return ", ".join(found)
    if TIMEOUT.search(text):
        return "no answer in time"
    if "onnect" in text:
        return "no connection"
    return "an unknown error"
