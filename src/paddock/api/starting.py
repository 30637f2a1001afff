"""What a port answers before its process has a database: that the process lives, and why it cannot serve yet.

`serve` listens from its first second: whoever looks after it must not take one that waits for its database for one that
hangs, and start it again and again.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

import paddock
from paddock.api.database_problems import RETRY_SECONDS, DatabaseProblem
from paddock.api.edge import Edge
from paddock.api.errors import error_response
from paddock.api.pagination import answer
from paddock.config import Config
from paddock.metrics import Metrics

OPENING = DatabaseProblem(
    "starting",
    "This control plane is starting: it brings its database up to date.",
    "Ask again in a few seconds.",
)


class Starting:
    def __init__(self, notice: Callable[[], str | None]) -> None:
        self.problem = OPENING
        self._notice = notice

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._alive() if scope["path"] == "/health" else self._not_yet(scope["path"])
        await response(scope, receive, send)

    def _alive(self) -> Response:
        """The database, if there is anything to say of it, and never as a reason to end this process."""
        told = self._notice() or (None if self.problem is OPENING else self.problem.message)
        return answer({"status": "ok", "version": paddock.__version__, **({} if told is None else {"database": told})})

    def _not_yet(self, path: str) -> Response:
        problem, headers = self.problem, {"Retry-After": str(RETRY_SECONDS)}
        return error_response(503, problem.code, problem.message, path=path, hint=problem.hint, headers=headers)


def at_the_edge(starting: Starting, config: Config, host: str) -> ASGIApp:
    """With the request ids, headers and bounds of every other answer. What it counts is of no process that works yet."""
    return Edge(starting, config=config, metrics=Metrics(CollectorRegistry()), host=host)
