"""A proxy in front of the API server for what it does not do on demand: 429, 500, a lost answer, a cut list or watch,
being away, and a request that is held while a test does something else.

Each fault is for the requests it matches, a number of times or until it is taken back; what no fault matches goes
through. `requests` is what came, in order, with what was answered."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import aiohttp
import yarl
from aiohttp import web

from tests.cluster.admin import WAIT_SECONDS
from tests.cluster.server import Cluster

NOT_PASSED_ON = {"host", "connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass
class Request:
    """`code` is 0 as long as nothing was answered, and where the answer was lost."""

    method: str
    path: str
    query: dict[str, str]
    agent: str
    code: int = 0

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in ("1", "true")


Answer = Callable[[web.BaseRequest, Request], Awaitable[web.StreamResponse]]


@dataclass
class Fault:
    """`times` counts down; None: until it is taken back."""

    matches: Callable[[Request], bool]
    answer: Answer
    times: int | None
    met: int = 0

    def take_back(self) -> None:
        self.times = 0


@dataclass
class Gate:
    """Holds the requests it matches. `reached` is set when one came, `release` lets them through."""

    fault: Fault
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        await asyncio.wait_for(self.reached.wait(), WAIT_SECONDS)

    def release(self) -> None:
        self.fault.take_back()
        self.released.set()


class Faults:
    def __init__(self, cluster: Cluster, session: aiohttp.ClientSession) -> None:
        self._cluster = cluster
        self._session = session
        self._faults: list[Fault] = []
        self._watches: set[asyncio.Task[None]] = set()
        self._gates: list[Gate] = []
        self.server = web.Server(self.handle)
        self.away = False
        self.requests: list[Request] = []
        self.url = ""

    # Which requests: by method, a part of the path ("/pods", "/pods/name"), or whatever is to be looked at.

    def refuse(
        self,
        code: int,
        *,
        method: str = "",
        path: str = "",
        times: int | None = 1,
        retry_after: int | None = None,
        message: str = "",
        reason: str = "",
        when: Callable[[Request], bool] = lambda request: True,
    ) -> Fault:
        """A `Status` in place of an answer; the server never sees the request."""
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        status |= {"message": message or "the tests would have it so", "reason": reason}
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}

        async def answer(came: web.BaseRequest, request: Request) -> web.StreamResponse:
            await came.read()
            return web.json_response(status, status=code, headers=headers)

        return self._add(method, path, when, answer, times)

    def lose_answer(self, *, method: str = "POST", path: str = "", times: int | None = 1) -> Fault:
        """The server does what was asked; the line breaks before anybody hears of it."""

        async def answer(came: web.BaseRequest, request: Request) -> web.StreamResponse:
            async with self._ask(came) as there:
                await there.read()
            return await _break(came, request)

        return self._add(method, path, lambda request: True, answer, times)

    def lose_request(self, *, method: str = "", path: str = "", times: int | None = 1) -> Fault:
        """The line breaks before the server saw the request."""
        return self._add(method, path, lambda request: True, _break, times)

    def cut_list(self, *, path: str = "/pods", times: int | None = 1) -> Fault:
        """The line breaks at the second page of a list, and at each further one."""
        return self._add("GET", path, lambda request: "continue" in request.query, _break, times)

    def hold(self, *, method: str = "", path: str = "", times: int | None = 1, after: bool = False) -> Gate:
        """Requests wait at the gate before they are passed on, or `after`: the server has done them, nobody heard yet."""

        async def answer(came: web.BaseRequest, request: Request) -> web.StreamResponse:
            done = await self._pass_on(came, request) if after else None
            gate.reached.set()
            await gate.released.wait()
            return done or await self._pass_on(came, request)

        gate = Gate(self._add(method, path, lambda request: True, answer, times))
        self._gates.append(gate)
        return gate

    def cut_watches(self) -> int:
        """How many were open. Those who watch see the line break."""
        cut = len(self._watches)
        for watch in list(self._watches):
            watch.cancel()
        return cut

    def expire_watches(self, times: int = 1) -> Fault:
        """The next watch gets HTTP 200 and one ERROR event: its version is too old."""
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired"}
        event = {"type": "ERROR", "object": status | {"message": "too old resource version: 1 (2)"}}

        async def answer(came: web.BaseRequest, request: Request) -> web.StreamResponse:
            return web.Response(body=json.dumps(event).encode() + b"\n", content_type="application/json")

        return self._add("GET", "", lambda request: request.is_watch, answer, times)

    @contextlib.contextmanager
    def gone_away(self) -> Iterator[None]:
        """As if the server's machine were off: open watches break, and every request."""
        self.away = True
        self.cut_watches()
        try:
            yield
        finally:
            self.away = False

    def _add(self, method: str, path: str, when: Callable[[Request], bool], answer: Answer, times: int | None) -> Fault:
        def matches(request: Request) -> bool:
            return method in ("", request.method) and path in request.path and when(request)

        fault = Fault(matches, answer, times)
        self._faults.append(fault)
        return fault

    # The proxy

    async def handle(self, came: web.BaseRequest) -> web.StreamResponse:
        request = Request(came.method, came.path, dict(came.query), came.headers.get("User-Agent", ""))
        self.requests.append(request)
        answer = await self._answer_of(request)(came, request)
        request.code = 0 if came.transport is None or came.transport.is_closing() else answer.status
        return answer

    def _answer_of(self, request: Request) -> Answer:
        if self.away:
            return _hang_up
        for fault in self._faults:
            if fault.times != 0 and fault.matches(request):
                fault.met += 1
                if fault.times is not None:
                    fault.times -= 1
                return fault.answer
        return self._pass_on

    def _ask(self, came: web.BaseRequest) -> "contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]":
        headers = {name: value for name, value in came.headers.items() if name.lower() not in NOT_PASSED_ON}
        # As it came: quoting it anew would change what it says.
        url = yarl.URL(self._cluster.url + came.raw_path, encoded=True)
        return self._session.request(
            came.method, url, headers=headers, data=came.content if came.can_read_body else None
        )

    async def _pass_on(self, came: web.BaseRequest, request: Request) -> web.StreamResponse:
        async with self._ask(came) as there:
            headers = {name: value for name, value in there.headers.items() if name.lower() not in NOT_PASSED_ON}
            if not request.is_watch:
                return web.Response(status=there.status, headers=headers, body=await there.read())
            answer = web.StreamResponse(status=there.status, headers=headers)
            await answer.prepare(came)
            passing = asyncio.create_task(_pass_lines(there, answer))
            self._watches.add(passing)
            try:
                await asyncio.wait([passing])
            finally:
                passing.cancel()
                self._watches.discard(passing)
            if passing.cancelled():
                _abort(came)
            return answer

    def release_all(self) -> None:
        for gate in self._gates:
            gate.release()
        self.cut_watches()


async def _pass_lines(there: aiohttp.ClientResponse, answer: web.StreamResponse) -> None:
    with contextlib.suppress(aiohttp.ClientError, ConnectionError):
        async for chunk in there.content.iter_any():
            await answer.write(chunk)


async def _break(came: web.BaseRequest, request: Request) -> web.StreamResponse:
    """Where a line breaks before the answer begins, a client like aiohttp asks again by itself what may be asked twice, and
    nobody would see the fault: such an answer begins, and breaks."""
    if came.method in ("POST", "PATCH"):
        return await _hang_up(came, request)
    answer = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
    await answer.prepare(came)
    await answer.write(b"{")
    _abort(came)
    return answer


async def _hang_up(came: web.BaseRequest, request: Request) -> web.StreamResponse:
    _abort(came)
    return web.Response(status=503)


def _abort(came: web.BaseRequest) -> None:
    if came.transport is not None:
        came.transport.abort()


@contextlib.asynccontextmanager
async def faults_before(cluster: Cluster) -> AsyncIterator[Faults]:
    """`url` is where it answers, with the server's own certificate: the cluster's CA file is good for it too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*cluster.server_certificate)
    connector = aiohttp.TCPConnector(ssl=cluster.ssl_context(), limit=0)
    async with aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False
    ) as session:
        faults = Faults(cluster, session)
        runner = web.ServerRunner(faults.server, access_log=None, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        faults.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield faults
        finally:
            faults.release_all()
            await runner.cleanup()
