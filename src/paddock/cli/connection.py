"""The line to the control plane: finds the server and the token, asks, and turns refusals into sentences."""

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from paddock.cli.errors import FAILED, NOT_FOUND, REFUSED, USAGE, CommandFailed

if TYPE_CHECKING:
    import httpx2

SERVER_OPTIONS = Group("Server", sort_key=9)
PAGE = 500
ANSWER_SECONDS = 30.0
# A repeat is safe where the call changes nothing or carries an idempotency key.
REPEATS = 3

EXIT_CODES: Mapping[int, int] = {400: USAGE, 404: NOT_FOUND, 409: REFUSED, 422: USAGE, 503: REFUSED}
START_ONE = "Start one with `paddock up`, or name yours with --server URL or PADDOCK_SERVER."


@Parameter(name="*", group=SERVER_OPTIONS)
@dataclass(frozen=True)
class Connect:
    """Which server, and as whom."""

    server: Annotated[str | None, Parameter(help="Address of the control plane.")] = None
    token_file: Annotated[Path | None, Parameter(help="File that holds the token.")] = None
    data: Annotated[Path | None, Parameter(help="Data folder of a `paddock up` on this machine.")] = None


HERE = Connect()


@dataclass(frozen=True)
class Found:
    """Where the server is and how that was learnt."""

    url: str
    token: str | None
    told_by: str


def find(connect: Connect) -> Found:
    """--server, then PADDOCK_SERVER or paddock.toml, then the running `paddock up`."""
    from paddock.config import load

    config = load(
        overrides={"server": connect.server, "token_file": connect.token_file, "data": connect.data},
    )
    token = config.bearer_token()
    secret = token.get_secret_value() if token else None
    if config.server is not None and (connect.server is not None or connect.data is None):
        # The token of a local `up` is for that server only: it is not sent to whatever address was named.
        return Found(config.server, secret or _token_if_same(config.data, config.server), config.source("server"))
    url = read_address(config.data)
    if url is None:
        raise CommandFailed(f"No Paddock is running in {config.data}.", hint=START_ONE)
    return Found(url, secret or read_token(config.data), f"{config.data}/server.json")


def read_address(data: Path) -> str | None:
    """What a running `paddock up` wrote; None when there is none, or it was killed and left its file behind."""
    try:
        told = json.loads((data / "server.json").read_text("utf-8"))
        url, pid = str(told["url"]), int(told["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if is_alive(pid) else None


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:  # alive, and somebody else's
        return True
    except OSError:
        return False
    return True


def read_token(data: Path) -> str | None:
    try:
        return (data / "admin.token").read_text("utf-8").strip() or None
    except PermissionError:
        raise CommandFailed(
            f"{data / 'admin.token'} belongs to somebody else.",
            hint="Ask them for a token of your own: PADDOCK_TOKEN or --token-file FILE.",
        ) from None
    except OSError:
        return None


def _token_if_same(data: Path, url: str) -> str | None:
    return read_token(data) if read_address(data) == url.rstrip("/") else None


class Server:
    def __init__(self, found: Found) -> None:
        import httpx2

        self.url = found.url
        self.told_by = found.told_by
        headers = {"User-Agent": "paddock-cli"}
        if found.token:
            headers["Authorization"] = f"Bearer {found.token}"
        self._http = httpx2.Client(base_url=found.url, headers=headers, timeout=ANSWER_SECONDS)

    def get(self, path: str, **parameters: Any) -> Any:
        return self.answer("GET", path, parameters=parameters)["data"]

    def post(self, path: str, body: Any = None, *, idempotency_key: str | None = None) -> Any:
        return self.answer("POST", path, body=body, idempotency_key=idempotency_key).get("data")

    def make_work(self, path: str, body: Any, *, key: str | None = None) -> Any:
        """A POST that may be repeated: an answer that was lost does not make the work twice."""
        return self.post(path, body, idempotency_key=key or str(uuid.uuid4()))

    def patch(self, path: str, body: Any) -> Any:
        return self.answer("PATCH", path, body=body).get("data")

    def delete(self, path: str) -> Any:
        return self.answer("DELETE", path).get("data")

    def pages(self, path: str, limit: int | None, **parameters: Any) -> Iterator[dict[str, Any]]:
        """Items of all pages until `limit`; None: until the end."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            asked = PAGE if left is None else min(PAGE, left)
            page = self.answer("GET", path, parameters={**parameters, "limit": asked, "cursor": cursor})
            yield from page["data"]
            left = None if left is None else left - len(page["data"])
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def answer(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        body: Any = None,
        idempotency_key: str | None = None,
        timeout: float = ANSWER_SECONDS,
    ) -> dict[str, Any]:
        """The whole answer as JSON; `CommandFailed` for everything that is not one."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        may_repeat = method == "GET" or idempotency_key is not None
        for left in reversed(range(REPEATS if may_repeat else 1)):
            try:
                response = self._http.request(
                    method,
                    path,
                    params={name: value for name, value in (parameters or {}).items() if value is not None},
                    json=body,
                    headers=headers,
                    timeout=timeout,
                )
                return self._read(response)
            except _transport_errors() as error:
                if left == 0 or _refused(error):
                    raise self._away(error) from None
        raise AssertionError("the last repeat returned or raised")

    def _read(self, response: "httpx2.Response") -> dict[str, Any]:
        if response.status_code == 204 or (response.is_success and not response.content):
            return {}
        try:
            content = response.json()
            if response.is_success:
                return dict(content)
            error = content["error"]
            message, hint, details = error["message"], error.get("hint"), error.get("details") or {}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CommandFailed(
                f"{self.url} answered {response.status_code}, but not like Paddock does.",
                hint=f"Is this the right address? It was told by {self.told_by}.",
            ) from None
        if response.status_code == 401:
            hint = (
                f"The token comes from --token-file, PADDOCK_TOKEN, PADDOCK_TOKEN_FILE or admin.token in the data "
                f"folder; the address from {self.told_by}."
            )
        raise Refusal(response.status_code, error.get("code", ""), message, hint, details)

    def _away(self, error: Exception) -> CommandFailed:
        if "TimeoutException" in {parent.__name__ for parent in type(error).__mro__}:
            return CommandFailed(f"Paddock at {self.url} did not answer in time.", hint="Try again; `paddock doctor`.")
        return CommandFailed(f"No Paddock answers at {self.url} (told by {self.told_by}).", hint=START_ONE)


class Refusal(CommandFailed):
    """The server said no. `code` is the API's stable word for why."""

    def __init__(self, status: int, code: str, message: str, hint: str | None, details: Mapping[str, Any]) -> None:
        super().__init__(message, hint=hint, exit_code=EXIT_CODES.get(status, FAILED))
        self.status = status
        self.code = code
        self.details = details


def _transport_errors() -> tuple[type[Exception], ...]:
    import httpx2

    return (httpx2.TransportError, httpx2.InvalidURL)


def _refused(error: Exception) -> bool:
    """Nobody listens there: asking again at once will not help."""
    import httpx2

    return isinstance(error, httpx2.ConnectError | httpx2.InvalidURL | httpx2.UnsupportedProtocol)


def open_server(connect: Connect) -> Server:
    return Server(find(connect))


@contextmanager
def allowed_to_fail() -> Iterator[None]:
    """For what only some roles may ask: an analyst's `why` goes without the workers."""
    try:
        yield
    except Refusal as refusal:
        if refusal.status != 403:
            raise
