"""What it asks its own control plane."""

import asyncio
import contextlib
import http.client
import json

from paddock.up.errors import UpError
from paddock.up.keeping import Kept


async def until_ready(url: str, plane: Kept, stop: asyncio.Event) -> None:
    while not stop.is_set() and not await asyncio.to_thread(_answers, url):
        if plane.first_end.is_set():
            raise UpError("The control plane ended before it was ready; what it said is above.")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.05)


def _answers(url: str) -> bool:
    try:
        return _ask(url, "GET", "/ready")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def sign_in_link(url: str, secret: str) -> str | None:
    """None when there is none to be had: the token works as well."""
    try:
        status, answer = _ask(url, "POST", "/api/tokens/self/sign-in-link", secret)
        told = json.loads(answer)["data"]
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        return None
    link = str(told.get("url") or told.get("path") or "") if status < 300 else ""
    return (link if "://" in link else url + link) if link else None


def _ask(url: str, method: str, path: str, secret: str | None = None) -> tuple[int, bytes]:
    """Ten lines instead of a client library: it would cost half of the start."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=5)
    try:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {secret}"} if secret else {})}
        connection.request(method, path, body="{}" if method == "POST" else None, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
