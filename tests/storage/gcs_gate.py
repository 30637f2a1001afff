"""Google's XML API, which obstore speaks, in front of fake-gcs-server, which speaks the JSON one:

    python -m tests.storage.gcs_gate PORT BACKEND PUBLIC_KEY

Objects are the server's; here are only the words, the signatures (a service account's own tokens), and the parts of
uploads that are not complete yet, under the rules that Google documents for them.
"""

import base64
import hashlib
import json
import sys
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import aiohttp
from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from yarl import URL

LEAST_PART = 5 << 20
LARGEST_REQUEST = 1 << 30


class Refused(Exception):
    def __init__(self, status: int, code: str) -> None:
        self.status, self.code = status, code


class Gate:
    def __init__(self, backend: str, public_key: RSAPublicKey, session: aiohttp.ClientSession) -> None:
        self._backend, self._public_key, self._session = backend, public_key, session
        self._uploads: dict[str, dict[int, bytes]] = {}

    async def answer(self, request: web.Request) -> web.Response:
        try:
            self._check_token(request.headers.get("Authorization", ""))
            bucket, _, quoted = request.rel_url.raw_path.removeprefix("/").partition("/")
            if not quoted:
                return await self._list(bucket, request.query)
            if request.query.keys() & {"uploads", "uploadId"}:
                return await self._multipart(request, bucket, unquote(quoted))
            return await self._object(request, bucket, unquote(quoted))
        except Refused as refused:
            return _xml(f"<Error><Code>{refused.code}</Code></Error>", status=refused.status)

    def _check_token(self, header: str) -> None:
        try:
            signed, _, signature = header.removeprefix("Bearer ").rpartition(".")
            self._public_key.verify(_decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
            claims = json.loads(_decoded(signed.partition(".")[2]))
        except (InvalidSignature, ValueError):
            raise Refused(401, "AuthenticationRequired") from None
        if claims["exp"] < time.time():
            raise Refused(401, "AuthenticationRequired")

    async def _object(self, request: web.Request, bucket: str, key: str) -> web.Response:
        if request.method in ("GET", "HEAD"):
            return await self._read(request, bucket, key)
        if request.method == "DELETE":
            await self._ask("DELETE", _path(bucket, key), bucket)
            return web.Response(status=204)
        if source := request.headers.get("x-goog-copy-source"):
            from_bucket, _, from_key = source.partition("/")
            copy = f"{_path(from_bucket, unquote(from_key))}/rewriteTo{_path(bucket, key).removeprefix('/storage/v1')}"
            await self._ask("POST", copy, bucket)
            return web.Response()
        return await self._write(bucket, key, await request.read(), request.headers.get("x-goog-if-generation-match"))

    async def _read(self, request: web.Request, bucket: str, key: str) -> web.Response:
        facts = json.loads(await self._ask("GET", _path(bucket, key), bucket))
        headers = {
            "ETag": f'"{facts["etag"]}"',
            "Last-Modified": format_datetime(datetime.fromisoformat(facts["updated"]).astimezone(UTC), usegmt=True),
            "x-goog-generation": facts["generation"],
        }
        if request.method == "HEAD":
            return web.Response(headers={**headers, "Content-Length": facts["size"]})
        asked = {"Range": request.headers["Range"]} if "Range" in request.headers else {}
        media = URL(f"{self._backend}{_path(bucket, key)}?alt=media", encoded=True)
        async with self._session.get(media, headers=asked) as answer:
            if answer.status == 416:
                raise Refused(416, "InvalidRange")
            if "Content-Range" in answer.headers:
                headers["Content-Range"] = answer.headers["Content-Range"]
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)

    async def _write(self, bucket: str, key: str, data: bytes, generation: str | None = None) -> web.Response:
        condition = f"&ifGenerationMatch={generation}" if generation is not None else ""
        path = f"/upload/storage/v1/b/{quote(bucket)}/o?uploadType=media&name={quote(key, safe='')}{condition}"
        facts = json.loads(await self._ask("POST", path, bucket, data))
        return web.Response(headers={"ETag": f'"{facts["etag"]}"', "x-goog-generation": facts["generation"]})

    async def _list(self, bucket: str, query: Mapping[str, str]) -> web.Response:
        asked = {"prefix": query.get("prefix"), "delimiter": query.get("delimiter")}
        asked |= {"pageToken": query.get("continuation-token"), "maxResults": query.get("max-keys", "1000")}
        said = "&".join(f"{name}={quote(value, safe='')}" for name, value in asked.items() if value)
        found = json.loads(await self._ask("GET", f"/storage/v1/b/{quote(bucket)}/o?{said}", bucket))
        contents = "".join(
            f"<Contents><Key>{escape(item['name'])}</Key><Size>{item['size']}</Size>"
            f"<LastModified>{item['updated']}</LastModified><ETag>{item['etag']}</ETag></Contents>"
            for item in found.get("items", [])
        )
        folders = "".join(
            f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>"
            for prefix in found.get("prefixes", [])
        )
        more = found.get("nextPageToken")
        token = f"<NextContinuationToken>{escape(more)}</NextContinuationToken>" if more else ""
        return _xml(f"<ListBucketResult>{contents}{folders}{token}</ListBucketResult>")

    async def _multipart(self, request: web.Request, bucket: str, key: str) -> web.Response:
        if "uploads" in request.query:
            await self._ask("GET", f"/storage/v1/b/{quote(bucket)}", bucket)
            upload = uuid.uuid4().hex
            self._uploads[upload] = {}
            return _xml(f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>")
        upload = request.query["uploadId"]
        if upload not in self._uploads:
            raise Refused(404, "NoSuchUpload")
        if request.method == "PUT":
            data = await request.read()
            self._uploads[upload][int(request.query["partNumber"])] = data
            return web.Response(headers={"ETag": _etag(data)})
        if request.method == "POST":
            whole = _joined(self._uploads[upload], await request.text())
            written = await self._write(bucket, key, whole)
            del self._uploads[upload]
            etag = f"<ETag>{escape(written.headers['ETag'])}</ETag>"
            return _xml(f"<CompleteMultipartUploadResult>{etag}</CompleteMultipartUploadResult>")
        del self._uploads[upload]
        return web.Response(status=204)

    async def _ask(self, method: str, path: str, bucket: str, data: bytes | None = None) -> bytes:
        async with self._session.request(method, URL(self._backend + path, encoded=True), data=data) as answer:
            body = await answer.read()
        if answer.status == 404:
            async with self._session.get(f"{self._backend}/storage/v1/b/{quote(bucket)}") as found:
                raise Refused(404, "NoSuchBucket" if found.status == 404 else "NoSuchKey")
        if answer.status == 412:
            raise Refused(412, "PreconditionFailed")
        if answer.status >= 300:
            raise Refused(answer.status, "BackendError")
        return body


def _joined(parts: Mapping[int, bytes], asked: str) -> bytes:
    named = [
        (int(_text(part, "PartNumber")), _text(part, "ETag").strip('"'))
        for part in ElementTree.fromstring(asked)
        if part.tag.endswith("Part")
    ]
    numbers = [number for number, _ in named]
    if numbers != sorted({*numbers}):
        raise Refused(400, "InvalidPartOrder")
    if any(number not in parts or _etag(parts[number]).strip('"') != etag for number, etag in named):
        raise Refused(400, "InvalidPart")
    if any(len(parts[number]) < LEAST_PART for number in numbers[:-1]):
        raise Refused(400, "EntityTooSmall")
    return b"".join(parts[number] for number in numbers)


def _text(part: ElementTree.Element, name: str) -> str:
    return next((child.text or "" for child in part if child.tag.endswith(name)), "")


def _path(bucket: str, key: str) -> str:
    return f"/storage/v1/b/{quote(bucket)}/o/{quote(key, safe='')}"


def _xml(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type="application/xml")


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


async def gate(backend: str, public_key: Path) -> web.Application:
    loaded: Any = serialization.load_pem_public_key(public_key.read_bytes())
    application = web.Application(client_max_size=LARGEST_REQUEST)
    application.router.add_route(
        "*", "/{anything:.*}", Gate(backend, loaded, aiohttp.ClientSession(auto_decompress=False)).answer
    )
    return application


if __name__ == "__main__":
    web.run_app(gate(sys.argv[2], Path(sys.argv[3])), host="127.0.0.1", port=int(sys.argv[1]), print=None)
