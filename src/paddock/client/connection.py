"""The line to a server. What may be asked twice is asked again when it breaks."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx2

from paddock.client.errors import Job, PaddockError, Unreachable
from paddock.client.reading import Message, answer, plain, read_events
from paddock.client.waiting import repeated

ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.2
# The server says something every 15 s; silence for three times that long is a broken line.
SILENCE_SECONDS = 45.0


class Connection:
    """One server, asked over HTTP: an answer, a stream, or the bytes of a file."""

    def __init__(
        self,
        server: str,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        patience: float = 0.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """`patience` is how many seconds long a request is repeated that the server says may be repeated."""
        self.server = server.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx2.Client(base_url=self.server, headers=headers, timeout=timeout, transport=transport)
        self._timeout = timeout
        self.patience = patience

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        idempotency_key: str | None = None,
        role: str | None = None,
        timeout: float | None = None,
        changes_nothing: bool = False,
    ) -> dict[str, Any]:
        """The answer as it came: `data`, and for lists `next_cursor`. `role` is the engine role to work under. A POST that
        `changes_nothing` is asked again when the line breaks, as a GET is."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        headers |= {"X-Use-Case-Id": role} if role else {}
        repeatable = method == "GET" or idempotency_key is not None or changes_nothing
        given = {name: plain(value) for name, value in (params or {}).items() if value is not None}

        def ask() -> dict[str, Any]:
            response = self._send(
                lambda: self._http.request(
                    # An empty mapping would take away what the path itself asks for.
                    method,
                    path,
                    params=given or None,
                    json=body,
                    headers=headers,
                    timeout=timeout or self._timeout,
                ),
                attempts=ATTEMPTS if repeatable else 1,
            )
            return answer(response)

        return repeated(ask, self.patience)

    @contextlib.contextmanager
    def streamed(self, path: str, *, body: Any, accept: str, timeout: float | None = None) -> Iterator[httpx2.Response]:
        """The answer to a POST that changes nothing, its body to be read as it comes. `Unreachable` when it breaks."""
        request = self._http.build_request(
            "POST", path, json=body, headers={"Accept": accept}, timeout=timeout or self._timeout
        )

        def ask() -> httpx2.Response:
            response = self._send(lambda: self._http.send(request, stream=True))
            if not response.is_success:
                with contextlib.closing(response):
                    response.read()
                    answer(response)
            return response

        with contextlib.closing(repeated(ask, self.patience)) as response:
            try:
                yield response
            except httpx2.TransportError as problem:
                raise Unreachable(self.server, problem) from problem

    def stream_once(
        self,
        *,
        kind: str | None = None,
        group: str | None = None,
        job: str | None = None,
        batch: bool = False,
        last_event_id: str | None = None,
        silence: float = SILENCE_SECONDS,
    ) -> Iterator[Message]:
        """The messages of one connection, signs of life too. `Unreachable` when it breaks or stays silent."""
        params = {"kind": kind, "group": group, "job": job, "batch": 1 if batch else None}
        given = {name: value for name, value in params.items() if value is not None}
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        timeout = httpx2.Timeout(self._timeout, read=silence)
        try:
            with self._http.stream("GET", "/api/stream", params=given, headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    response.read()
                    answer(response)
                yield from read_events(response.iter_lines())
        except httpx2.TransportError as problem:
            raise Unreachable(self.server, problem) from problem

    def about_file(self, path: str) -> Mapping[str, str]:
        """What the server says of a file without sending it: `etag`, `content-length`."""
        response = self._send(lambda: self._http.head(path))
        if response.status_code != 200:
            answer(response)
        return response.headers

    def download(
        self, path: str, *, params: Mapping[str, Any] | None = None, start: int = 0, etag: str | None = None
    ) -> Iterator[bytes]:
        """The bytes of a file from `start` on. `Unreachable` when the line breaks: ask again from there. With an `etag`
        only of that very file: `PaddockError` `file_changed` when another took its place."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        headers |= {"If-Range": etag} if start and etag else {}
        try:
            with self._http.stream("GET", path, params=params, headers=headers) as response:
                if response.status_code not in (200, 206):
                    response.read()
                    answer(response)
                if etag and response.headers.get("etag", etag) != etag:
                    raise PaddockError(412, "file_changed", "The server has another file under this name by now.")
                part = response.status_code == 206
                if part and not response.headers.get("content-range", "").startswith(f"bytes {start}-"):
                    raise PaddockError(
                        206, "wrong_range", "The server sent another part of the file than was asked for."
                    )
                # Who knows no ranges, a proxy perhaps, sends it all.
                known = 0 if part else start
                for chunk in response.iter_bytes():
                    if len(chunk) > known:
                        yield chunk[known:]
                    known = max(0, known - len(chunk))
        except httpx2.TransportError as problem:
            raise Unreachable(self.server, problem) from problem

    def _send(self, send: Callable[[], httpx2.Response], attempts: int = ATTEMPTS) -> httpx2.Response:
        for attempt in range(attempts):
            if attempt:
                time.sleep(FIRST_PAUSE_SECONDS * 2**attempt)
            try:
                return send()
            except httpx2.TransportError as problem:
                if attempt == attempts - 1:
                    raise Unreachable(self.server, problem) from problem
        raise AssertionError("the loop above returns or raises")

    def _job(self, method: str, path: str, **options: Any) -> Job:
        found: Job = self._data(method, path, **options)
        return found

    def _data(self, method: str, path: str, **options: Any) -> Any:
        return self.request(method, path, **options)["data"]
