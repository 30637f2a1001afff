"""What a connection may cost before anybody is known, over real sockets. Nobody waits here: the limits are small."""

import asyncio
import http.client
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs

from paddock.api.connections import Limits
from tests.api.conftest import Clients, serving

GET = b"GET /health HTTP/1.1\r\nHost: x\r\n"
# Nothing is late in these, whatever the machine does; what a test is about it makes small.
PATIENT = Limits(head_seconds=300, body_seconds=300, keep_alive_seconds=300, dropped_seconds=300)
MOMENT = 0.05


class Socket:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        with suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def send_for_ever(self) -> None:
        while True:
            self.writer.write(b"x" * 65536)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def answer(self) -> tuple[int, bytes]:
        """One answer; the connection may go on."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return int(head.split()[1]), await self.reader.readexactly(int(length.split(b":")[1]))

    async def refusal(self) -> tuple[int, str]:
        """An answer after which the connection ends."""
        status, body = await self.answer()
        assert await self.ended() == b""
        return status, json.loads(body)["error"]["code"]

    async def ended(self) -> bytes:
        """What came until the end."""
        received = b""
        with suppress(ConnectionError):
            while more := await self.reader.read(65536):
                received += more
        return received


Connect = Callable[[], Awaitable[Socket]]


@asynccontextmanager
async def bounded(app: FastAPI, limits: Limits) -> AsyncIterator[Connect]:
    sockets: list[Socket] = []
    async with serving(app, limits) as (_, address):
        port = int(address.rpartition(":")[2])

        async def connect() -> Socket:
            sockets.append(Socket(*await asyncio.open_connection("127.0.0.1", port)))
            return sockets[-1]

        try:
            yield connect
        finally:
            for opened in sockets:
                opened.writer.close()


async def test_a_head_that_is_too_large_is_answered_431(app: FastAPI) -> None:
    hostile = {
        "one header": (GET + b"X: " + b"a" * 40_000, "headers_too_large"),
        "one header that never ends": (GET + b"X: " + b"a" * 4_000_000, "headers_too_large"),
        "a whole header": (GET + b"X: " + b"a" * 33_000 + b"\r\n\r\n", "headers_too_large"),
        "a name": (GET + b"a" * 40_000, "headers_too_large"),
        "the address": (b"GET /" + b"a" * 40_000, "headers_too_large"),
        "empty lines before it": (b"\r\n" * 40_000, "headers_too_large"),
        "many headers": (GET + b"a: b\r\n" * 100 + b"\r\n", "too_many_headers"),
    }
    async with bounded(app, PATIENT) as connect:
        for name, (data, code) in hostile.items():
            socket = await connect()
            await socket.send(data)
            assert await socket.refusal() == (431, code), name
        usual = await connect()
        await usual.send(GET + b"a: b\r\n" * 98 + b"X: " + b"a" * 30_000 + b"\r\n\r\n")
        assert (await usual.answer())[0] == 200


async def test_an_endless_header_in_small_parts_is_cut_off_too(app: FastAPI) -> None:
    async with bounded(app, PATIENT) as connect:
        socket = await connect()
        await socket.send(GET + b"X: ")
        refusal = asyncio.create_task(socket.refusal())
        while not refusal.done():
            await socket.send(b"a" * 1000)
            await asyncio.sleep(0)
        assert await refusal == (431, "headers_too_large")


@pytest.mark.parametrize("endless", [b"0\r\nX: ", b"0\r\n", b"5;x="], ids=["trailer", "trailers", "extension"])
async def test_what_a_chunked_body_says_besides_its_bytes_is_bounded(
    app: FastAPI, clients: Clients, endless: bytes
) -> None:
    more = b"a: b\r\n" if endless == b"0\r\n" else b"aaaaaa"
    async with bounded(app, PATIENT) as connect:
        socket = await connect()
        await socket.send(b"POST /api/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: x\r\n")
        await socket.send(
            b"Authorization: Bearer " + clients.secrets["ada"].encode() + b"\r\n\r\n3\r\nabc\r\n" + endless
        )
        await socket.send(more * 50_000)
        assert await socket.refusal() == (431, "headers_too_large")


async def test_a_trailer_is_no_header(app: FastAPI, clients: Clients) -> None:
    token = clients.secrets["ada"].encode()
    async with bounded(app, PATIENT) as connect:
        socket = await connect()
        await socket.send(b"GET /api/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: x\r\n\r\n")
        await socket.send(b"0\r\nAuthorization: Bearer " + token + b"\r\n\r\n")
        assert (await socket.answer())[0] == 401


async def test_whoever_is_slow_with_the_head_or_the_body_is_told_and_closed(app: FastAPI, clients: Clients) -> None:
    token = clients.secrets["ada"].encode()
    body = b"POST /api/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nContent-Type: application/json\r\n"
    body += b"Authorization: Bearer " + token + b"\r\n\r\n{"
    async with bounded(app, replace(PATIENT, head_seconds=MOMENT, body_seconds=MOMENT)) as connect:
        silent, head, lines, late = [await connect() for _ in range(4)]
        await head.send(GET)
        await lines.send(b"\r\n")
        await late.send(body)
        assert await silent.ended() == b""
        assert await head.refusal() == (408, "headers_late")
        assert await lines.refusal() == (408, "headers_late")
        assert await late.refusal() == (408, "body_late")


async def test_a_head_in_drops_does_not_begin_its_time_anew(app: FastAPI) -> None:
    async with bounded(app, replace(PATIENT, head_seconds=MOMENT)) as connect:
        socket = await connect()
        refusal = asyncio.create_task(socket.refusal())
        await socket.send(GET + b"X: ")
        while not refusal.done():  # a byte at a time, far from the limit of bytes
            await socket.send(b"a")
            await asyncio.sleep(MOMENT / 50)
        assert await refusal == (408, "headers_late")


async def test_a_connection_is_kept_between_requests_and_then_closed(app: FastAPI) -> None:
    assert Limits().keep_alive_seconds == 75
    async with bounded(app, replace(PATIENT, keep_alive_seconds=MOMENT)) as connect:
        socket = await connect()
        await socket.send(GET + b"\r\n" + GET + b"\r\n")
        assert (await socket.answer())[0] == (await socket.answer())[0] == 200
        assert await socket.ended() == b""


async def test_a_stream_outlives_every_limit(app: FastAPI, clients: Clients) -> None:
    token = clients.secrets["ada"].encode()
    limits = Limits(
        head_seconds=MOMENT, body_seconds=MOMENT, keep_alive_seconds=MOMENT, dropped_seconds=MOMENT, log_seconds=MOMENT
    )
    async with bounded(app, limits) as connect:
        stream = await connect()
        await stream.send(b"GET /api/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + b"\r\n\r\n")
        await stream.reader.readuntil(b"\r\n\r\n")
        for _ in range(3):
            idle = await connect()
            await idle.send(GET + b"\r\n")
            await idle.answer()
            await idle.ended()  # keep-alive
            assert await (await connect()).ended() == b""  # silent
        assert not stream.reader.at_eof()


async def test_silent_connections_make_room_and_requests_under_way_do_not(app: FastAPI, clients: Clients) -> None:
    token = clients.secrets["ada"].encode()
    watch = b"GET /api/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + b"\r\n\r\n"
    async with bounded(app, replace(PATIENT, connections=3)) as connect:
        streams = [await connect() for _ in range(2)]
        for stream in streams:
            await stream.send(watch)
            await stream.reader.readuntil(b"\r\n\r\n")
        silent = await connect()
        newer = await connect()
        assert await silent.ended() == b""
        await newer.send(watch)
        await newer.reader.readuntil(b"\r\n\r\n")
        refused = await connect()
        assert await refused.refusal() == (503, "too_many_connections")
        assert not any(stream.reader.at_eof() for stream in [*streams, newer])


async def test_more_idle_connections_than_there_may_be_keep_nobody_out_and_the_log_says_so_once(app: FastAPI) -> None:
    async with bounded(app, replace(PATIENT, connections=20, log_seconds=300)) as connect:
        with capture_logs() as logs:
            for _ in range(110):
                await connect()
            honest = await connect()
            await honest.send(GET + b"\r\n")
            assert (await honest.answer())[0] == 200
    lines = [line for line in logs if line["event"] == "connections_refused"]
    assert [(line["log_level"], line["closed_for_newer"]) for line in lines] == [("warning", 1)]


async def test_refusals_are_counted_for_the_next_line(app: FastAPI) -> None:
    async with bounded(app, replace(PATIENT, log_seconds=MOMENT)) as connect:
        with capture_logs() as logs:
            for _ in range(5):
                socket = await connect()
                await socket.send(b"nonsense\r\n\r\n")
                assert await socket.refusal() == (400, "malformed")
            while sum(line.get("malformed", 0) for line in logs) < 5:  # noqa: ASYNC110  the log has no event to wait for
                await asyncio.sleep(MOMENT)


def post_whole(port: int, token: str, *, chunked: bool, version: str) -> tuple[int, str]:
    """As a client that reads nothing before it has sent everything."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client._http_vsn_str = version  # type: ignore[attr-defined]  # there is no public way to speak 1.0
    size = 16 * 1024 * 1024
    parts = (b"x" * 65536 for _ in range(size // 65536))
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    if not chunked:
        headers["Content-Length"] = str(size)
    client.request("POST", "/api/jobs", body=parts, headers=headers, encode_chunked=chunked)
    answer = client.getresponse()
    code = json.loads(answer.read())["error"]["code"]
    client.close()
    return answer.status, code


async def test_every_client_reads_that_its_body_is_too_large(app: FastAPI, clients: Clients) -> None:
    token = clients.secrets["ada"]
    async with serving(app, PATIENT) as (_, address):
        port = int(address.rpartition(":")[2])
        for chunked, version in ((False, "HTTP/1.1"), (True, "HTTP/1.1"), (False, "HTTP/1.0")):
            answer = await asyncio.to_thread(post_whole, port, token, chunked=chunked, version=version)
            assert answer == (413, "body_too_large"), (chunked, version)


async def test_a_body_without_end_is_answered_and_cut_off(app: FastAPI) -> None:
    async with bounded(app, replace(PATIENT, dropped_bytes=1_000_000)) as connect:
        socket = await connect()
        await socket.send(b"POST /api/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        status, _ = await socket.answer()
        assert status == 413
        with pytest.raises(ConnectionError):
            await socket.send_for_ever()


async def test_a_client_that_asks_before_it_sends_is_answered_at_once(app: FastAPI) -> None:
    async with bounded(app, PATIENT) as connect:
        socket = await connect()
        await socket.send(
            b"POST /api/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\nExpect: 100-continue\r\n\r\n"
        )
        assert await socket.refusal() == (413, "body_too_large")


async def test_pipelined_requests_are_answered_in_order_and_bounded(app: FastAPI) -> None:
    async with bounded(app, PATIENT) as connect:
        few = await connect()
        await few.send((GET + b"\r\n") * 10)
        assert [(await few.answer())[0] for _ in range(10)] == [200] * 10
        many = await connect()
        await many.send((GET + b"\r\n") * 5000)
        received = await many.ended()
        assert 1 <= received.count(b"HTTP/1.1 200") <= PATIENT.pipelined + 1


async def test_nonsense_after_a_request_does_not_spoil_its_answer(app: FastAPI) -> None:
    async with bounded(app, PATIENT) as connect:
        socket = await connect()
        await socket.send(GET + b"\r\n" + b"\x00nonsense\r\n\r\n")
        assert (await socket.answer())[0] == 200
        assert await socket.ended() == b""


async def test_a_request_that_goes_wrong_after_its_answer_gets_no_second_one(app: FastAPI) -> None:
    async with bounded(app, PATIENT) as connect:
        socket = await connect()
        await socket.send(b"POST /api/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: x\r\n\r\n")
        assert (await socket.answer())[0] == 401
        await socket.send(b"nonsense\r\n\r\n")
        assert await socket.ended() == b""


async def test_old_and_odd_clients_are_answered(app: FastAPI) -> None:
    odd = {
        "HTTP/1.0": (b"GET /health HTTP/1.0\r\n\r\n", 200),
        "an upgrade": (GET + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", 200),
        "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    }
    async with bounded(app, PATIENT) as connect:
        for name, (data, status) in odd.items():
            socket = await connect()
            await socket.send(data)
            assert (await socket.answer())[0] == status, name
            assert await socket.ended() == b"", name


async def test_who_reads_nothing_of_its_answers_is_let_go(app: FastAPI) -> None:
    """It would hold its place for ever, and strangers all of them."""
    async with bounded(app, replace(PATIENT, connections=1, pipelined=1000, unread_seconds=MOMENT)) as connect:
        deaf = await connect()
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]  # its transport reads, too
        with suppress(ConnectionError):
            while not deaf.writer.is_closing():
                deaf.writer.write((GET.replace(b"/health", b"/openapi.json") + b"\r\n") * 10)
                await deaf.writer.drain()
                await asyncio.sleep(MOMENT)
        usual = await connect()
        await usual.send(GET + b"\r\n")
        assert (await usual.answer())[0] == 200


async def test_a_body_is_never_taken_for_another_protocol(app: FastAPI) -> None:
    async with bounded(app, PATIENT) as connect:
        socket = await connect()
        await socket.send(GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello")
        assert await socket.refusal() == (400, "upgrade_refused")
        without = await connect()
        await without.send(GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        assert (await without.answer())[0] == 200


def test_the_limit_of_open_files_makes_room_for_connections() -> None:
    script = (
        "import resource\n"
        "from paddock.api.server import raise_file_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 1000))\n"
        "print(raise_file_limit(50), raise_file_limit(500), raise_file_limit(5000))\n"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["50", "500", "1000", "1000", "1000"]
