"""`paddock ingest transfer fetch|ship`: what runs before and after the command of a step in its pod. It has the token of this
step and nothing else of ours; what the command wrote is as hostile here as anywhere.
"""

import hashlib
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.ingest.outputs import InvalidOutput
from paddock.ingest.transfer_files import HIDDEN, HIDDEN_COUNT, HIDDEN_VARIABLE, OUTPUTS, PIECE, STORED

TRIES, PAUSE_SECONDS, ANSWER_SECONDS = 6, 2.0, 120
# The platform's fault, whatever it was: it is tried again.
FAILED = 75


class TransferFailed(Exception):
    pass


class Plane:
    """The control plane, as a container of a step reaches it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._base = environ["PADDOCK_TRANSFER_URL"].rstrip("/")
        self._token = environ["PADDOCK_TRANSFER_TOKEN"]

    def get(self, path: str) -> Any:
        return self._ask("GET", path)

    def send(self, method: str, path: str, content: bytes) -> None:
        with self._ask(method, path, content):
            pass

    def _ask(self, method: str, path: str, content: bytes | None = None) -> Any:
        """What is refused is not asked again; a control plane that is away may come back."""
        request = urllib.request.Request(  # noqa: S310  the address is our own setting
            f"{self._base}/{path}", content, {"Authorization": f"Bearer {self._token}"}, method=method
        )
        for left in reversed(range(TRIES)):
            try:
                return urllib.request.urlopen(request, timeout=ANSWER_SECONDS)  # noqa: S310
            except urllib.error.HTTPError as problem:
                if (problem.code < 500 and problem.code != 429) or not left:
                    raise TransferFailed(
                        f"{method} {path}: {problem.code} {problem.read(500).decode('utf-8', 'replace')}"
                    ) from None
            except OSError as problem:
                if not left:
                    raise TransferFailed(f"{method} {path}: {problem}") from None
            time.sleep(PAUSE_SECONDS)
        raise AssertionError("the last try returns or raises")


def fetch(plane: Plane, folder: Path) -> None:
    """The inputs of the step, as the command reads them."""
    with plane.get("inputs") as answer:
        names: Sequence[str] = json.load(answer)["inputs"]
    for name in names:
        with plane.get(f"inputs/{name}") as answer, (folder / name).open("wb") as file:
            while data := answer.read(1 << 20):
                file.write(data)
    if STORED in names:
        from paddock.ingest.hooking import give

        give(folder / STORED, folder / "records.jsonl")
        (folder / STORED).unlink()


def tell_hidden(plane: Plane, values: Sequence[str], token: str, draft: str) -> None:
    """What the values of the step's secrets look like. Where nobody could be told, the worker shows nothing of its log."""
    from paddock.ingest.hiding import sums_of

    try:
        plane.send("PUT", f"outputs/{draft}/{HIDDEN}/0", sums_of(values, token))
    except TransferFailed as problem:
        sys.stderr.write(f"The log of this step will be left out: {problem}\n")


def ship(plane: Plane, folder: Path, step: str, draft: str) -> None:
    """The named outputs, in pieces, and then the seal."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    found: dict[str, list[tuple[int, str]]] = {}
    for name, most in OUTPUTS[step].items():
        if name == HIDDEN:  # `fetch` has told it, and no step may tell otherwise
            continue
        pieces = _pieces(fd, name, most)
        if pieces is None:
            continue
        found[name] = []
        for n, piece in enumerate(pieces):
            plane.send("PUT", f"outputs/{draft}/{name}/{n}", piece)
            found[name].append((len(piece), hashlib.sha256(piece).hexdigest()))
    plane.send("PUT", f"outputs/{draft}/seal", json.dumps({"files": found}).encode())


def _pieces(folder: int, name: str, most: int) -> Iterator[bytes] | None:
    from paddock.ingest.outputs import opened

    try:
        file = opened(folder, name, most)
    except InvalidOutput as problem:
        # Told as a line that no reader takes: the worker says what was wrong, as it does on its own machine.
        return iter([json.dumps({"invalid_output": problem.message}).encode()])
    if file is None:
        return None

    def read() -> Iterator[bytes]:
        with file:
            left = most
            while left > 0 and (piece := file.read(min(PIECE, left))):
                left -= len(piece)
                yield piece

    return read()


def main(what: str, environ: Mapping[str, str]) -> int:
    try:
        plane = Plane(environ)
        if what == "fetch":
            fetch(plane, Path(environ["PADDOCK_IN"]))
            values = [value for name, value in environ.items() if name.startswith(HIDDEN_VARIABLE)]
            # A Secret that is not there yet may be there when the step starts: what is not known cannot be hidden.
            if values and len(values) == int(environ[HIDDEN_COUNT]):
                tell_hidden(plane, values, environ["PADDOCK_TRANSFER_TOKEN"], environ["PADDOCK_DRAFT"])
        else:
            ship(plane, Path(environ["PADDOCK_OUT"]), environ["PADDOCK_STEP"], environ["PADDOCK_DRAFT"])
    except (TransferFailed, OSError, ValueError) as problem:
        sys.stderr.write(f"{problem}\n")
        return FAILED
    return 0
