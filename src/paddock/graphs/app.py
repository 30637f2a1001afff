"""The HTTP of an instance. Routes only translate; everybody but /health needs the token.

Every answer names the generation and how often the engine was restarted: the control plane's proxy records a rise.
"""

import hashlib
import hmac
import time

import structlog
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddock.graphs.algorithms.routes import algorithm_routes
from paddock.graphs.answers import BrokenOff, QueryAnswer, data_response, problem_response
from paddock.graphs.asking import MOST_PARAMETERS, MOST_TEXT, read_query
from paddock.graphs.instance import Instance, iso
from paddock.graphs.metrics import Metrics
from paddock.graphs.plan import read_plan
from paddock.graphs.problems import Problem
from paddock.graphs.starting import PROTOCOL

MOST_PLAN = 64 << 20
# JSON may write one byte of text as six.
MOST_QUERY = 6 * MOST_TEXT + MOST_PARAMETERS

log = structlog.get_logger("paddock.graphs")


def create_app(instance: Instance) -> ASGIApp:
    routes = Routes(instance)
    app = Starlette(
        routes=[
            Route("/health", routes.health),
            Route("/ready", routes.ready),
            Route("/load", routes.load, methods=["POST"]),
            Route("/status", routes.status),
            Route("/query", routes.query, methods=["POST"]),
            Route("/queries", routes.queries),
            Route("/queries/{id}/cancel", routes.cancel, methods=["POST"]),
            Route("/schema", routes.schema),
            Route("/metrics", routes.metrics),
            *algorithm_routes(instance, _body),
        ],
        exception_handlers={Problem: _problem, HTTPException: _http},
    )
    return Guard(app, instance)


class Guard:
    """Around everything: who may ask, what every answer carries, and nothing of a bug but its code."""

    def __init__(self, app: ASGIApp, instance: Instance) -> None:
        self._app = app
        self._instance = instance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._add_headers(MutableHeaders(scope=message))
            await send(message)

        if scope["path"] != "/health" and not self._knows(Headers(scope=scope).get("authorization", "")):
            problem = Problem(401, "unauthorized", "The token is missing or not this instance's.")
            await problem_response(problem)(scope, receive, send_with_headers)
            return
        try:
            await self._app(scope, receive, send_with_headers)
        except ClientDisconnect:
            return
        except BrokenOff as broken:
            # Returned from without its end, the answer is not complete: the connection is closed.
            log.warning("answer_broken_off", code=str(broken))
        except Exception:
            log.exception("request_failed", path=scope["path"])
            if begun:
                raise
            problem = Problem(500, "internal_error", "Something went wrong in the instance.")
            await problem_response(problem)(scope, receive, send_with_headers)

    def _knows(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        found = hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
        return scheme.lower() == "bearer" and hmac.compare_digest(found, self._instance.start.token_sha256)

    def _add_headers(self, headers: MutableHeaders) -> None:
        engines = self._instance.engines
        headers["Paddock-Generation"] = self._instance.start.generation
        headers["Paddock-Engine-Restarts"] = str(engines.restarts.total())
        headers["Paddock-Engine-Restart-Reason"] = engines.last_reason


class Routes:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._metrics = Metrics(instance)

    async def metrics(self, request: Request) -> Response:
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def health(self, request: Request) -> Response:
        return data_response({"generation": self._instance.start.generation, "protocol": PROTOCOL})

    async def ready(self, request: Request) -> Response:
        phase = self._instance.phase
        return data_response({"phase": phase}, 200 if phase == "ready" else 503)

    async def load(self, request: Request) -> Response:
        plan = read_plan(await _body(request, MOST_PLAN))
        loads = self._instance.load(plan)
        return data_response(self._instance.status(), 202 if loads else 200)

    async def status(self, request: Request) -> Response:
        return data_response(self._instance.status())

    async def query(self, request: Request) -> Response:
        asked = read_query(await _body(request, MOST_QUERY), request.headers.get("accept", ""))
        self._instance.require_ready()
        return QueryAnswer(self._instance.queries.start(asked))

    async def queries(self, request: Request) -> Response:
        now = time.monotonic()
        return data_response(
            [
                {
                    "query_id": query.asked.id,
                    "owner": query.asked.owner,
                    "query": query.asked.text,
                    "state": query.state,
                    "since": iso(query.asked_at),
                    "seconds": round(now - query.began, 3),
                }
                for query in self._instance.queries.list()
            ]
        )

    async def cancel(self, request: Request) -> Response:
        if not self._instance.queries.cancel(request.path_params["id"]):
            raise Problem(404, "not_found", "No such query runs or waits.")
        return data_response({"query_id": request.path_params["id"], "cancelled": True})

    async def schema(self, request: Request) -> Response:
        current = self._instance.require_ready()
        counts = current.counts
        nodes = [{**table, "count": counts["nodes"][table["label"]]} for table in current.definitions["nodes"]]
        edges = [{**table, "count": counts["edges"][table["type"]]} for table in current.definitions["edges"]]
        return data_response({"nodes": nodes, "edges": edges})


async def _body(request: Request, most: int) -> bytes:
    body = bytearray()
    async for some in request.stream():
        body += some
        if len(body) > most:
            raise Problem(413, "too_large", f"The body has more than {most:,} bytes.")
    return bytes(body)


async def _problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return problem_response(problem)


async def _http(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(problem.status_code, "invalid")
    return problem_response(Problem(problem.status_code, code, "There is no such route in an instance."))
