"""What a connection may cost before anybody is known: uvicorn's HTTP protocol, with bounds.

A stranger gets so many header bytes and headers, so much time for them and for a body, and one of so many places. What
is over a bound is answered where that is still possible, and the connection ends. An answer may take as long as it
takes, streams and long polls among them; but who reads nothing of it for a while is let go.

Where the answer leaves before the request has come in (413, 431), the rest is read and dropped for a while: a socket
closed with unread bytes in it resets the peer, and the peer loses the answer with it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import httptools
import structlog
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from paddock.api.errors import error_response

log = structlog.get_logger()


@dataclass(frozen=True)
class Limits:
    connections: int = 1000
    header_bytes: int = 32 * 1024  # the request line too, and again for the trailers of a chunked body
    headers: int = 100
    head_seconds: float = 10  # from the first byte, or from the connection itself, to the end of the headers
    body_seconds: float = 60  # from there to the end of the body
    keep_alive_seconds: float = 75  # between an answer and the next request
    unread_seconds: float = 120  # in which a peer takes nothing of an answer that waits for it
    pipelined: int = 20  # requests that wait for the answer to an earlier one
    dropped_bytes: int = 64 * 1024 * 1024  # of a request that is answered already
    dropped_seconds: float = 30
    log_seconds: float = 10


@dataclass
class Gate:
    """The limits of one listening port, and one log line for many refusals: strangers must not fill the log."""

    limits: Limits
    _refusals: Counter[str] = field(default_factory=Counter)
    _timer: asyncio.TimerHandle | None = None

    def refused(self, code: str) -> None:
        self._refusals[code] += 1
        if self._timer is None:
            self._tell()
            self._wait()

    def _tell(self) -> None:
        log.warning("connections_refused", **self._refusals)
        self._refusals.clear()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.limits.log_seconds, self._waited)

    def _waited(self) -> None:
        self._timer = None
        if self._refusals:
            self._tell()
            self._wait()


class Refusal(Exception):
    """Why a connection ends, as the answer to its request."""

    def __init__(self, status: int, code: str, message: str, hint: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.code = code
        self.response = error_response(status, code, message, hint=hint, headers=headers)


class BoundedProtocol(HttpToolsProtocol):
    """One connection. It waits for a head or for the rest of one, reads a body, answers, or drops what still comes."""

    gate: ClassVar[Gate]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.limits = self.gate.limits
        self.timeout_keep_alive = cast(int, self.limits.keep_alive_seconds)
        self._refusal: Refusal | None = None
        self._reading_body = False
        self._moved_on = False  # since the slice began: a head or message ended, or bytes of a body came
        self._head_bytes = 0  # of the head that is not complete, or of what is neither head nor body
        self._headers_bytes = 0
        self._close_after_answer = False
        self._dropped: int | None = None  # None: what comes is wanted
        self._timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._waiting_since = self.loop.time()

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        if len(self.connections) >= self.limits.connections:
            self._make_room()
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(_too_many_connections(self.limits))
        else:
            self._start_timer(self.limits.head_seconds, self._head_is_late)

    def _make_room(self) -> None:
        """Closes whoever waits longest with no request under way. The newest is the likeliest to be somebody's: a flood
        of silent connections pushes itself out, and a request that runs is never ended for a new one."""
        waiting = [other for other in self.connections if isinstance(other, BoundedProtocol) and not other.is_busy]
        if waiting:
            longest = min(waiting, key=lambda other: other._waiting_since)
            self.gate.refused("closed_for_newer")
            self.connections.discard(longest)
            longest.end()

    @property
    def is_busy(self) -> bool:
        cycle = cast(RequestResponseCycle | None, self.cycle)
        return cycle is not None and not cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_unread_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    # What comes in.

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            # In slices: httptools keeps a header that has not ended, and what it keeps must be counted first.
            for start in range(0, len(data), self.limits.header_bytes):
                if self._dropped is None:
                    self._feed(data[start : start + self.limits.header_bytes])
                else:
                    self._drop(len(data) - start)
                    return
        except Refusal as refusal:
            self._refuse(refusal)
        else:
            if self._timer is None and self._dropped is None and not self.transport.is_closing():
                self._time_what_is_missing()

    def _feed(self, data: bytes) -> None:
        self._moved_on = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Nothing here speaks another protocol: the request is answered as if it had not asked for one.
            self.cycle.keep_alive = False
            self._dropped = 0
            if not self.is_busy:
                self._drop_the_rest()
            return
        except httptools.HttpParserError as error:
            raise self._refusal or _malformed() from error
        if self._moved_on:
            # What began after that in this slice is not counted; it is less than a slice.
            self._head_bytes = 0
            return
        # Nothing but a head that goes on, empty lines before it, or the trailers and chunk extensions of a body.
        self._head_bytes += len(data)
        if self._head_bytes >= self.limits.header_bytes:
            raise _head_too_large(self.limits)

    def _time_what_is_missing(self) -> None:
        if self._reading_body:
            self._start_timer(self.limits.body_seconds, self._body_is_late)
        elif self._head_bytes and not self.is_busy:
            self._start_timer(self.limits.head_seconds, self._head_is_late)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._headers_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + len(": \r\n"))
        if self._reading_body:
            return  # A trailer. Nothing here reads one, and it must not pass for a header.
        if len(self.headers) >= self.limits.headers:
            self._stop(_too_many_headers(self.limits))
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._headers_bytes += size
        if self._headers_bytes > self.limits.header_bytes:
            self._stop(_head_too_large(self.limits))

    def _stop(self, refusal: Refusal) -> None:
        """From inside the parser, which wraps what its callbacks raise."""
        self._refusal = refusal
        raise refusal

    def on_headers_complete(self) -> None:
        self._stop_timer()
        if len(self.pipeline) >= self.limits.pipelined:
            self._stop(_too_many_pipelined(self.limits))
        if self.parser.should_upgrade() and self._announces_body():
            # The parser would take the body for the other protocol's.
            self._stop(_upgrade_with_body())
        super().on_headers_complete()
        self._moved_on = self._reading_body = True
        self._headers_bytes = 0
        self.cycle.transport = cast(asyncio.Transport, _Answering(self, self.cycle))

    def _announces_body(self) -> bool:
        sent = dict(self.headers)
        return sent.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in sent

    def on_body(self, body: bytes) -> None:
        self._moved_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._moved_on = True
        self._reading_body = False
        super().on_message_complete()
        if not self.is_busy:  # It was answered before all of it was here.
            self._await_next_request()

    # What goes out.

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_unread_timer()
        self._unread_timer = self.loop.call_later(self.limits.unread_seconds, self._nobody_reads)

    def resume_writing(self) -> None:
        self._stop_unread_timer()
        super().resume_writing()

    def _nobody_reads(self) -> None:
        """An answer that nobody takes would hold its place for ever, and strangers could hold all of them."""
        self._unread_timer = None
        self.gate.refused("answer_unread")
        self.end()

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def on_response_complete(self) -> None:
        self._waiting_since = self.loop.time()
        if self._close_after_answer and (self.pipeline or not self._reading_body):
            self.transport.close()
        super().on_response_complete()
        if self.transport.is_closing() or self.is_busy:
            return
        if self._close_after_answer or self._dropped is not None:
            self._drop_the_rest()
        elif self._reading_body:
            # The connection may be used again, once the rest of this request has been read.
            self._unset_keepalive_if_required()
            self._start_timer(self.limits.dropped_seconds, self.end)
        elif self._head_bytes:
            self._start_timer(self.limits.head_seconds, self._head_is_late)

    def _await_next_request(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.limits.keep_alive_seconds, self.timeout_keep_alive_handler
        )

    def close_after_answer(self) -> None:
        self._close_after_answer = True

    def _refuse(self, refusal: Refusal) -> None:
        self.gate.refused(refusal.code)
        if self.is_busy and (self.pipeline or self.cycle.response_started or not self._reading_body):
            # An earlier request is being answered. That answer is the last one here, and nothing may be put into it.
            self._stop_timer()
            self._dropped = 0
            self.close_after_answer()
            return
        if self.is_busy or not self._reading_body:  # Else this request has its answer, and its rest is what is wrong.
            self.transport.write(_as_bytes(refusal.response))
        if self.is_busy:  # Whoever works on this request learns that nobody waits for its answer.
            self.cycle.disconnected = True
            self.cycle.waiting_for_100_continue = False
            self.cycle.message_event.set()
        self._drop_the_rest()

    def _drop_the_rest(self) -> None:
        self._unset_keepalive_if_required()
        self._dropped = 0
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._start_timer(self.limits.dropped_seconds, self.end)

    def _drop(self, size: int) -> None:
        assert self._dropped is not None
        self._dropped += size
        if self._dropped > self.limits.dropped_bytes:
            self.end()

    def shutdown(self) -> None:
        if self._dropped is not None and not self.is_busy:
            self.end()
        super().shutdown()

    # Time.

    def _start_timer(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_is_late(self) -> None:
        self._timer = None
        if self.is_busy:
            return  # Bytes after a request that is being answered; `on_response_complete` goes on from here.
        if self._head_bytes:
            self._refuse(_late("headers", self.limits.head_seconds))
        else:
            self.end()  # It never said anything, so there is nothing to answer.

    def _body_is_late(self) -> None:
        if self.flow.read_paused:  # It is us who do not read.
            self._start_timer(self.limits.body_seconds, self._body_is_late)
        else:
            self._timer = None
            self._refuse(_late("body", self.limits.body_seconds))

    def end(self) -> None:
        """At once where the peer takes nothing: `close` would wait until it has read what was written."""
        self._stop_timer()
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()


class _Answering:
    """The transport as an answer sees it. uvicorn closes it with the last bytes of an answer that ends the connection;
    the protocol does that instead, once what still comes in has been read."""

    def __init__(self, protocol: BoundedProtocol, cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._cycle = cycle
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing

    def close(self) -> None:
        if self._cycle.response_complete:
            self._protocol.close_after_answer()
        else:
            self._protocol.transport.close()  # The answer broke off, and its reader must see that.


def _as_bytes(response: Response) -> bytes:
    headers = [*response.raw_headers, (b"connection", b"close")]
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return STATUS_LINE[response.status_code] + lines + b"\r\n" + bytes(response.body)


def _too_many_connections(limits: Limits) -> Refusal:
    return Refusal(
        503,
        "too_many_connections",
        f"All {limits.connections:,} connections of this server are in use.",
        "Ask again in a few seconds. PADDOCK_MAX_CONNECTIONS says how many there may be.",
        {"Retry-After": "5"},
    )


def _head_too_large(limits: Limits) -> Refusal:
    return Refusal(
        431,
        "headers_too_large",
        f"The request line and the headers are larger than {limits.header_bytes:,} bytes.",
        "Send a shorter address, or fewer cookies and headers.",
    )


def _too_many_headers(limits: Limits) -> Refusal:
    return Refusal(
        431, "too_many_headers", f"The request has more than {limits.headers} headers.", "Send fewer headers."
    )


def _too_many_pipelined(limits: Limits) -> Refusal:
    return Refusal(
        429,
        "too_many_pipelined",
        f"More than {limits.pipelined} requests wait on one connection.",
        "Read the answers before sending more.",
    )


def _upgrade_with_body() -> Refusal:
    return Refusal(
        400,
        "upgrade_refused",
        "This server speaks HTTP/1.1 only, and a request with a body may not ask for another protocol.",
        "Send it without the header Upgrade: have the client use HTTP/1.1.",
    )


def _late(what: str, seconds: float) -> Refusal:
    return Refusal(
        408,
        f"{what}_late",
        f"The {what} of the request did not end within {seconds:g} seconds.",
        "Send the request again.",
    )


def _malformed() -> Refusal:
    return Refusal(400, "malformed", "The request is not HTTP/1.1.", "Look at its request line, headers and chunks.")
