"""Every store that can be had here, each test with a prefix of its own."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.storage.scratch import Scratch
from paddock.storage.store import Store, open_store
from tests.storage.gcs import gcs_server as gcs_server
from tests.storage.servers import Server

# Its server is built once, by Go, which takes minutes.
GCS = pytest.param("gcs", marks=[pytest.mark.slow, pytest.mark.timeout(900)])


@pytest.fixture(params=["local", "s3", "azure", GCS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return open_store(str(tmp_path / "store"))
    server: Server = request.getfixturevalue(f"{request.param}_server")
    return open_store(f"{server.url}/{uuid.uuid4()}", environ=server.environ)


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def s3(s3_server: Server) -> Store:
    return open_store(f"{s3_server.url}/{uuid.uuid4()}", environ=s3_server.environ)


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Scratch]:
    opened = Scratch(tmp_path / "scratch", budget=1 << 30)
    yield opened
    opened.close()


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "other"))
