"""Where the server is and who asks, found alike by the command line and by `connect()`."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from paddock.client.errors import PaddockError

START_ONE = "Start one with `paddock up`, or name yours with --server URL or PADDOCK_SERVER."


@dataclass(frozen=True)
class ServerAddress:
    """Where the server is and how that was learnt."""

    url: str
    token: str | None
    told_by: str


def find_server(server: str | None = None, token_file: Path | None = None, data: Path | None = None) -> ServerAddress:
    """The server that is named here, then PADDOCK_SERVER or paddock.toml, then the running `paddock up`."""
    from paddock.config import load

    config = load(overrides={"server": server, "token_file": token_file, "data": data})
    token = config.bearer_token()
    secret = token.get_secret_value() if token else None
    if config.server is not None and (server is not None or data is None):
        # The token of a local `up` is for that server only: it is not sent to whatever address was named.
        return ServerAddress(
            config.server, secret or _token_if_same(config.data, config.server), config.source("server")
        )
    url = read_address(config.data)
    if url is None:
        raise PaddockError(0, "no_server", f"No Paddock is running in {config.data}.", hint=START_ONE)
    return ServerAddress(url, secret or read_token(config.data), f"{config.data}/server.json")


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
        raise PaddockError(
            0,
            "token_not_readable",
            f"{data / 'admin.token'} belongs to somebody else.",
            hint="Ask them for a token of your own: PADDOCK_TOKEN or --token-file FILE.",
        ) from None
    except OSError:
        return None


def _token_if_same(data: Path, url: str) -> str | None:
    return read_token(data) if read_address(data) == url.rstrip("/") else None
