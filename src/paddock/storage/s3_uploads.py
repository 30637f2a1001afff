"""Multipart uploads of S3, one request at a time: obstore can neither list them nor go on with one.

The requests are bounded as in `paddock.storage.remote`: five seconds to connect, thirty to answer, a few repetitions
within thirty more. A part is sent with its MD5, so that what arrives is what was sent.
"""

import base64
import hashlib
import http
import logging
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
)
from botocore.exceptions import ConnectionError as NoConnection

from paddock.config import ConfigError
from paddock.jobs.errors import InfrastructureError
from paddock.storage.buckets import Bucket
from paddock.storage.failures import UploadGone, denied, no_bucket, not_found, unavailable, upload_gone

CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 30.0
TRIES = 5
TRY_SECONDS = 30.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
# obstore's, where nobody says another.
REGION = "us-east-1"
# The upload can no longer be completed, whatever one does.
GONE = frozenset({"NoSuchUpload", "InvalidPart", "InvalidPartOrder"})
# Refused, but the same again may do.
AGAIN = frozenset({"BadDigest", "IncompleteBody", "RequestTimeout", "SlowDown", "OperationAborted"})
# Nothing that the store said.
LINE = (HTTPClientError, NoConnection, OSError)
# The last two: a store that has no such request.
DENIED = frozenset({401, 403, 405, 501})
WORD = re.compile(r"\w{1,64}")
YES = frozenset({"1", "true", "yes", "on", "y"})
# botocore would look for a profile in the home folder, which obstore does not.
NO_FILES = {
    "profile": (None, None, None, None),
    "config_file": (None, None, "/dev/null", None),
    "credentials_file": (None, None, "/dev/null", None),
}

# What it logs below this level has signatures in it.
logging.getLogger("botocore").setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class OpenUpload:
    key: str
    id: str
    began: datetime


@dataclass(frozen=True, slots=True)
class UploadedObject:
    etag: str
    size: int
    encrypted: bool


class S3Uploads:
    """Keys are relative to the bucket's prefix. Blocks; failures are classified."""

    def __init__(self, bucket: Bucket) -> None:
        self.url = bucket.url
        self._bucket = bucket
        self._made: Any = None
        self._making = threading.Lock()

    def create(self, key: str) -> str:
        said = self._bucket.said
        encryption: dict[str, Any] = {
            "ServerSideEncryption": said("AWS_SERVER_SIDE_ENCRYPTION"),
            "SSEKMSKeyId": said("AWS_SSE_KMS_KEY_ID"),
        }
        answer = self._ask(
            "create_multipart_upload", key, **{name: value for name, value in encryption.items() if value}
        )
        return str(answer["UploadId"])

    def send(self, key: str, upload: str, number: int, data: bytes) -> str:
        digest = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        answer = self._ask("upload_part", key, UploadId=upload, PartNumber=number, Body=data, ContentMD5=digest)
        return _bare(answer["ETag"])

    def complete(self, key: str, upload: str, etags: Sequence[str]) -> None:
        parts = [{"PartNumber": number, "ETag": f'"{etag}"'} for number, etag in enumerate(etags, 1)]
        self._ask("complete_multipart_upload", key, UploadId=upload, MultipartUpload={"Parts": parts})

    def abort(self, key: str, upload: str) -> bool:
        """False: it was gone already."""
        try:
            self._ask("abort_multipart_upload", key, UploadId=upload)
        except UploadGone:
            return False
        return True

    def find(self, key: str) -> UploadedObject | None:
        try:
            answer = self._ask("head_object", key)
        except InfrastructureError as problem:
            if problem.code == "store_not_found":
                return None
            raise
        encrypted = answer.get("ServerSideEncryption", "").startswith("aws:")
        return UploadedObject(_bare(answer["ETag"]), answer["ContentLength"], encrypted)

    def open(self, prefix: str) -> Iterator[OpenUpload]:
        """Those whose keys begin so: `a/` are all below `a`."""
        start: dict[str, str] = {}
        while True:
            answer = self._ask(
                "list_multipart_uploads", prefix, whole=False, Prefix=self._bucket.prefix + prefix, **start
            )
            for found in answer.get("Uploads", []):
                if found["Key"].startswith(self._bucket.prefix + prefix):
                    key = found["Key"].removeprefix(self._bucket.prefix)
                    yield OpenUpload(key, found["UploadId"], found["Initiated"])
            before, start = start, _rest(answer)
            # Some stores say that there is more, but not where.
            if not start or start == before:
                return

    def _ask(self, operation: str, key: str, *, whole: bool = True, **arguments: Any) -> Any:
        call = getattr(self._client(), operation)
        arguments["Bucket"] = self._bucket.name
        if whole:
            arguments["Key"] = self._bucket.prefix + key
        if self._bucket.said("AWS_REQUEST_PAYER").lower() in YES:
            arguments["RequestPayer"] = "requester"
        until = time.monotonic() + TRY_SECONDS
        for tries in range(1, TRIES + 1):
            try:
                return call(**arguments)
            except (BotoCoreError, ClientError, OSError) as problem:
                if tries == TRIES or time.monotonic() > until or not _may_pass(problem):
                    raise self._classified(key, problem) from None
                time.sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (tries - 1)))
        raise AssertionError

    def _client(self) -> Any:
        with self._making:
            if self._made is None:
                try:
                    self._made = _client(self._bucket)
                except (BotoCoreError, ValueError, OSError):
                    raise ConfigError(
                        f"The store {self.url} is not configured as it should be: its endpoint or region is not valid."
                    ) from None
            return self._made

    def _classified(self, key: str, problem: Exception) -> InfrastructureError:
        status, code = _answer(problem)
        if code == "NoSuchBucket":
            return no_bucket(self.url)
        if code in GONE:
            return upload_gone(self.url, key)
        if status == http.HTTPStatus.NOT_FOUND:
            return not_found(self.url, key)
        if status in DENIED:
            return denied(self.url, _reason(status, code))
        if isinstance(problem, (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)):
            return unavailable(
                self.url, "there are no credentials in the environment, and this machine has none to give"
            )
        if isinstance(problem, (ReadTimeoutError, ConnectTimeoutError)):
            return unavailable(self.url, "no answer in time")
        return unavailable(
            self.url,
            _reason(status, code) if status else "no connection" if isinstance(problem, LINE) else "an unknown error",
        )


def _client(bucket: Bucket) -> Any:
    virtual = bucket.said("AWS_VIRTUAL_HOSTED_STYLE_REQUEST").lower() in YES
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=ANSWER_SECONDS,
        retries={"total_max_attempts": 1},
        max_pool_connections=32,
        ignore_configured_endpoint_urls=True,
        # Not every store that speaks S3 knows its newer checksums; parts carry an MD5.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "virtual" if virtual else "path"},
        **({"signature_version": UNSIGNED} if bucket.said("AWS_SKIP_SIGNATURE").lower() in YES else {}),
    )
    keys: dict[str, str] = {}
    # Without keys in an environment that was given to us: botocore's own way to our process's, and to the machine's.
    if bucket.environ is not None and bucket.said("AWS_ACCESS_KEY_ID"):
        keys["aws_access_key_id"] = bucket.said("AWS_ACCESS_KEY_ID")
        keys["aws_secret_access_key"] = bucket.said("AWS_SECRET_ACCESS_KEY")
        keys["aws_session_token"] = bucket.said("AWS_SESSION_TOKEN")
    return botocore.session.Session(session_vars=NO_FILES).create_client(
        "s3",
        region_name=bucket.region or REGION,
        endpoint_url=_without_bucket(bucket.endpoint, bucket.name) if virtual else bucket.endpoint or None,
        verify=bucket.certificates or True,
        config=config,
        **{name: value for name, value in keys.items() if value},
    )


def _without_bucket(endpoint: str, bucket: str) -> str | None:
    """obstore wants the bucket's name in such an endpoint, botocore puts it there."""
    host = urlsplit(endpoint).netloc
    return endpoint.replace(host, host.removeprefix(f"{bucket}."), 1) or None


def _may_pass(problem: Exception) -> bool:
    status, code = _answer(problem)
    if status is None:
        return isinstance(problem, LINE)
    return status >= 500 or status == http.HTTPStatus.TOO_MANY_REQUESTS or code in AGAIN


def _answer(problem: Exception) -> tuple[int | None, str]:
    if not isinstance(problem, ClientError):
        return None, ""
    code = WORD.match(str(problem.response.get("Error", {}).get("Code", "")))
    return problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode"), code[0] if code else ""


def _reason(status: int | None, code: str) -> str:
    """Nothing else of the answer: an address in it may carry a signature."""
    try:
        said = f"{status} {http.HTTPStatus(status or 0).phrase}"
    except ValueError:
        said = str(status)
    return f"{said}, {code}" if code and code != str(status) else said


def _rest(answer: Any) -> dict[str, str]:
    names = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
    return {name: answer[said] for name, said in names.items() if answer.get("IsTruncated") and answer.get(said)}


def _bare(etag: str) -> str:
    return etag.strip('"')
