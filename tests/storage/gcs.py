"""Google Cloud Storage for tests: fake-gcs-server, and before it the API that obstore speaks."""

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.components import installed, missing, run
from tests.storage.servers import BUCKET, Place, Server, answers, new_place, started, wait_until

VERSION = "v1.56.1"
# Of the server itself, and of the gate before it.
GCS_PORTS = 2
ROOT = Path(__file__).parents[2]


def fake_gcs_server() -> Path:
    package = f"github.com/fsouza/fake-gcs-server@{VERSION}"
    if shutil.which("go") is None:
        missing("fake-gcs-server", f"apt-get install golang, then go install {package}", "go is not installed")

    def install(folder: Path) -> None:
        run(["go", "install", "-trimpath", package], environ={"GOBIN": str(folder), "CGO_ENABLED": "0"})

    try:
        return installed("fake-gcs-server", VERSION, install) / "fake-gcs-server"
    except subprocess.SubprocessError as problem:
        missing("fake-gcs-server", f"go install {package}", f"go failed: {type(problem).__name__}")


def service_account(private_key: rsa.RSAPrivateKey) -> str:
    pem = private_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {"type": "service_account", "client_email": "paddock@tests", "private_key_id": "1"}
    return json.dumps({**account, "private_key": pem.decode()})


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@contextmanager
def gcs() -> Iterator[Server]:
    with new_place("gcs", GCS_PORTS) as place, gcs_at(place, "memory") as server:
        yield server


@contextmanager
def gcs_at(place: Place, backend_kind: str = "filesystem") -> Iterator[Server]:
    """On the file system it outlives a kill, but cannot keep `a` and `a/b` side by side as Google does."""
    program = fake_gcs_server()
    key = new_key()
    behind, port = place.ports
    public = place.folder / "public.pem"
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    backend, endpoint = f"http://127.0.0.1:{behind}", f"http://127.0.0.1:{port}"
    command = [str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(behind)]
    command += ["-backend", backend_kind, "-filesystem-root", str(place.folder / "objects")]
    gate = [sys.executable, "-m", "tests.storage.gcs_gate", str(port), backend, str(public)]
    with (
        started(command, {}, place.folder) as server,
        started(gate, {"PYTHONPATH": str(ROOT)}, place.folder) as process,
    ):
        wait_until(server, lambda: answers(backend))
        wait_until(process, lambda: answers(endpoint))
        _create_bucket(backend)
        environ = {"GOOGLE_SERVICE_ACCOUNT_KEY": service_account(key), "GOOGLE_BASE_URL": endpoint}
        yield Server(f"gs://{BUCKET}/exports", endpoint, environ, process, behind=server)


def _create_bucket(backend: str) -> None:
    body = json.dumps({"name": BUCKET}).encode()
    request = urllib.request.Request(f"{backend}/storage/v1/b", data=body, headers={"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(request, timeout=60).close()
    except urllib.error.HTTPError as answer:
        answer.close()
        if answer.code != 409:  # there since the server ran here before
            raise


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[Server]:
    with gcs() as server:
        yield server
