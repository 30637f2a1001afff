"""The line to the control plane: finds the server and the token, asks, and turns refusals into sentences."""

import contextlib
import shlex
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

from cyclopts import Group, Parameter

from paddock.cli.errors import FAILED, NOT_FOUND, REFUSED, USAGE, CommandFailed

if TYPE_CHECKING:
    from paddock.client import Client, Message
    from paddock.client.finding import ServerAddress

T = TypeVar("T")

SERVER_OPTIONS = Group("Server", sort_key=9)

EXIT_CODES: Mapping[int, int] = {
    400: USAGE, 403: REFUSED, 404: NOT_FOUND, 409: REFUSED, 413: USAGE, 422: USAGE, 503: REFUSED
}  # fmt: skip


@Parameter(name="*", group=SERVER_OPTIONS)
@dataclass(frozen=True)
class Connect:
    """Which server, and as whom."""

    server: Annotated[str | None, Parameter(help="Address of the control plane.")] = None
    token_file: Annotated[Path | None, Parameter(help="File that holds the token.")] = None
    data: Annotated[Path | None, Parameter(help="Data folder of a `paddock up` on this machine.")] = None

    @property
    def options(self) -> str:
        """As they were typed, for the commands that a hint names: ` --data demo`."""
        named = (("--server", self.server), ("--token-file", self.token_file), ("--data", self.data))
        return "".join(f" {option} {shlex.quote(str(value))}" for option, value in named if value is not None)


HERE = Connect()


def find(connect: Connect) -> "ServerAddress":
    """--server, then PADDOCK_SERVER or paddock.toml, then the running `paddock up`."""
    from paddock.client import PaddockError
    from paddock.client.finding import find_server

    try:
        return find_server(connect.server, connect.token_file, connect.data)
    except PaddockError as error:
        raise CommandFailed(error.message, hint=error.hint) from None


class Server:
    """The small client, with its errors as sentences for the terminal."""

    def __init__(self, found: "ServerAddress", patience: float = 0.0) -> None:
        from paddock.client import Client

        self.url = found.url
        self.told_by = found.told_by
        self._client = Client(found.url, found.token, patience=patience)

    def get(self, path: str, **parameters: Any) -> Any:
        return self.answer("GET", path, parameters=parameters)["data"]

    def post(self, path: str, body: Any = None) -> Any:
        return self.answer("POST", path, body=body).get("data")

    def make_work(self, path: str, body: Any, *, key: str | None = None, role: str | None = None) -> Any:
        """A POST that may be repeated: an answer that was lost does not make the work twice."""
        return self.answer("POST", path, body=body, idempotency_key=key or str(uuid.uuid4()), role=role).get("data")

    def patch(self, path: str, body: Any) -> Any:
        return self.answer("PATCH", path, body=body).get("data")

    def delete(self, path: str) -> Any:
        return self.answer("DELETE", path).get("data")

    def pages(self, path: str, limit: int | None, **parameters: Any) -> Iterator[dict[str, Any]]:
        """Items of all pages until `limit`; None: until the end."""
        with self._sentences():
            yield from self._client.pages(path, most=limit, **parameters)

    def stream(self, **asked: Any) -> Iterator["Message"]:
        """What one connection to the stream says, until it ends or breaks."""
        with self._sentences():
            yield from self._client.stream_once(**asked)

    def answer(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        body: Any = None,
        idempotency_key: str | None = None,
        role: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """The whole answer as JSON; `CommandFailed` for everything that is not one."""
        with self._sentences():
            return self._client.request(
                method, path, params=parameters, body=body, idempotency_key=idempotency_key, role=role, timeout=timeout
            )

    def ask(self, question: Callable[["Client"], T]) -> T:
        """What the Python client finds."""
        with self._sentences():
            return question(self._client)

    def about_file(self, path: str) -> Mapping[str, str]:
        with self._sentences():
            return self._client.about_file(path)

    def download(self, path: str, *, start: int = 0, etag: str | None = None, **parameters: Any) -> Iterator[bytes]:
        with self._sentences():
            yield from self._client.download(path, params=parameters, start=start, etag=etag)

    @contextlib.contextmanager
    def _sentences(self) -> Iterator[None]:
        from paddock.client import PaddockError, Unreachable

        try:
            yield
        except Unreachable:
            raise self.away() from None
        except PaddockError as error:
            hint = error.hint
            if error.code == f"http_{error.status}":
                hint = f"Is {self.url} the right address? It comes from {self.told_by}."
            elif error.status == 401:
                hint = (
                    "The token comes from --token-file, PADDOCK_TOKEN, PADDOCK_TOKEN_FILE or admin.token in the data "
                    f"folder; the address from {self.told_by}."
                )
            raise Refusal(error.status, error.code, error.message, hint, error.details) from None

    def close(self) -> None:
        self._client.close()

    def away(self) -> CommandFailed:
        from paddock.client.finding import START_ONE

        return CommandFailed(f"No Paddock answers at {self.url} (address from {self.told_by}).", hint=START_ONE)


class Refusal(CommandFailed):
    """The server said no. `code` is the API's stable word for why."""

    def __init__(self, status: int, code: str, message: str, hint: str | None, details: Mapping[str, Any]) -> None:
        super().__init__(message, hint=hint, exit_code=EXIT_CODES.get(status, FAILED))
        self.status = status
        self.code = code
        self.details = details


# Closed by `app.run` when the command has ended.
OPENED = contextlib.ExitStack()


def open_server(connect: Connect, patience: float = 0.0) -> Server:
    """Says at once when nobody listens there: the client itself is patient. A refusal is repeated for `patience` seconds
    where the server says that it may be."""
    server = Server(find(connect), patience)
    OPENED.callback(server.close)
    parts = urlsplit(server.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((str(parts.hostname), port), timeout=5).close()
    except OSError:
        raise server.away() from None
    return server


@contextlib.contextmanager
def allowed_to_fail() -> Iterator[None]:
    """For what only some roles may ask: an analyst's `why` goes without the workers."""
    try:
        yield
    except Refusal as refusal:
        if refusal.status != 403:
            raise
