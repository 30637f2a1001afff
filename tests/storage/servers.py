"""Real stores for tests: one of each in a test session, on free ports, gone with the process that started them.

tests/conftest.py brings their fixtures to every folder. A file that imported one would get a server of its own.
"""

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.components import azurite
from tests.ports import free_ports

START_SECONDS = 60
BUCKET = "lake"
WEED_PORTS = (
    *("s3.port", "s3.port.grpc", "s3.port.iceberg", "s3.port.lance", "master.port", "master.port.grpc"),
    *("volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "admin.port", "admin.port.grpc"),
)
# A server does not outlive the tests, however these end: the kernel kills it with the thread that started it.
TIED = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"
# Who may do what on SeaweedFS: everything, or only look.
IDENTITIES = {
    "test": ("testsecret", ["Admin", "Read", "Write", "List", "Tagging"]),
    "reader": ("readersecret", ["Read", "List"]),
}
# Azurite's own, published account.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass
class Server:
    """A store to use: `open_store(server.url, environ=server.environ)`."""

    url: str
    endpoint: str
    environ: Mapping[str, str]
    process: subprocess.Popen[bytes]
    # What it passes requests on to.
    behind: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        for process in (self.process, self.behind):
            if process is not None:
                process.kill()
                process.wait()


def aws_environ(endpoint: str, secret: str = "testsecret", key: str = "test") -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
    }


@dataclass(frozen=True)
class Place:
    """Where a server keeps its data and answers: one that starts here again is the same server."""

    folder: Path
    ports: Sequence[int]


@contextmanager
def seaweed() -> Iterator[Server]:
    """A real S3: signatures, conditional puts, the rules of multipart uploads."""
    with new_place("weed", len(WEED_PORTS)) as place, seaweed_at(place) as server:
        yield server


@contextmanager
def seaweed_at(place: Place) -> Iterator[Server]:
    command = [str(Path(sys.executable).parent / "weed"), "mini", f"-dir={place.folder}", "-ip=127.0.0.1"]
    command += ["-ip.bind=127.0.0.1", "-admin.ui=false", "-webdav=false", f"-bucket={BUCKET}"]
    identities = place.folder / "identities.json"
    identities.write_text(json.dumps({"identities": [_identity(name) for name in IDENTITIES]}))
    command += [f"-s3.config={identities}"]
    command += [f"-{name}={port}" for name, port in zip(WEED_PORTS, place.ports, strict=True)]
    endpoint = f"http://127.0.0.1:{place.ports[0]}"
    environ = aws_environ(endpoint)
    with started(command, environ, place.folder) as process:
        server = Server(f"s3://{BUCKET}/exports", endpoint, environ, process)
        wait_until(process, lambda: _bucket_exists(server))
        yield server


def _identity(name: str) -> dict[str, object]:
    secret, actions = IDENTITIES[name]
    return {"name": name, "credentials": [{"accessKey": name, "secretKey": secret}], "actions": actions}


@contextmanager
def moto() -> Iterator[Server]:
    """Knows what a missing bucket is, which SeaweedFS does not; takes any signature."""
    with new_place("moto", 1) as place:
        endpoint = f"http://127.0.0.1:{place.ports[0]}"
        command = [str(Path(sys.executable).parent / "moto_server"), "-H", "127.0.0.1", "-p", str(place.ports[0])]
        with started(command, {}, place.folder) as process:
            wait_until(process, lambda: answers(endpoint))
            urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=60).close()
            yield Server(f"s3://{BUCKET}/exports", endpoint, aws_environ(endpoint), process)


@contextmanager
def azure() -> Iterator[Server]:
    with new_place("azurite", 1) as place, azure_at(place) as server:
        yield server


@contextmanager
def azure_at(place: Place) -> Iterator[Server]:
    command = [str(azurite()), "--blobHost", "127.0.0.1", "--blobPort", str(place.ports[0])]
    command += ["--location", str(place.folder), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    endpoint = f"http://127.0.0.1:{place.ports[0]}/{ACCOUNT}"
    environ = {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY,
        "AZURE_STORAGE_ENDPOINT": endpoint,
    }
    with started(command, {}, place.folder) as process:
        wait_until(process, lambda: answers(endpoint))
        _create_container(endpoint)
        yield Server(f"az://{BUCKET}/exports", endpoint, environ, process)


@contextmanager
def new_place(name: str, ports: int) -> Iterator[Place]:
    # Something of a killed server may still be writing: what stays is in the system's folder for such things.
    with tempfile.TemporaryDirectory(prefix=f"paddock-{name}-", ignore_cleanup_errors=True) as folder:
        yield Place(Path(folder), free_ports(ports))


@contextmanager
def started(command: list[str], environ: Mapping[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", TIED, *command],
            env={**os.environ, **environ},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    except (RuntimeError, TimeoutError):
        # It did not start: the folder with its reasons goes with the test.
        sys.stderr.write((folder / "server.log").read_text("utf-8", "replace")[-4_000:])
        raise
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until(process: subprocess.Popen[bytes], ready: Callable[[], bool], *, seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None:
            raise RuntimeError(f"The server ended with {process.returncode} before it was ready.")
        if time.monotonic() > deadline:
            raise TimeoutError("The server did not become ready.")
        time.sleep(0.05)


def answers(endpoint: str) -> bool:
    try:
        urllib.request.urlopen(endpoint, timeout=5).close()
    except urllib.error.HTTPError as answer:
        answer.close()
        return True
    except OSError:
        return False
    return True


def _bucket_exists(server: Server) -> bool:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=server.endpoint,
        region="us-east-1",
        access_key_id="test",
        secret_access_key="testsecret",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    try:
        obstore.put(store, "ready", b"")
    except obstore.exceptions.BaseError:
        return False
    return True


def _create_container(endpoint: str) -> None:
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    version = "2021-08-06"
    text = (
        "PUT"
        + "\n" * 12
        + f"x-ms-date:{date}\nx-ms-version:{version}\n/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    )
    signature = base64.b64encode(hmac.digest(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256)).decode()
    headers = {"x-ms-date": date, "x-ms-version": version, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
    request = urllib.request.Request(f"{endpoint}/{BUCKET}?restype=container", method="PUT", headers=headers)
    try:
        urllib.request.urlopen(request, timeout=60).close()
    except urllib.error.HTTPError as answer:
        answer.close()
        if answer.code != 409:  # there since the server ran here before
            raise


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Server]:
    with seaweed() as server:
        yield server


@pytest.fixture(scope="session")
def moto_server() -> Iterator[Server]:
    with moto() as server:
        yield server


@pytest.fixture(scope="session")
def azure_server() -> Iterator[Server]:
    with azure() as server:
        yield server
