"""A worker whose handler is blocked in a call that the engine never answers: cancel and SIGTERM end it all the same."""

import signal
import socket
from collections.abc import Iterator

import pytest

from tests.maintenance.place import Place, place

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def silent() -> Iterator[socket.socket]:
    """Takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


@pytest.fixture(scope="module")
def paddock(silent: socket.socket) -> Iterator[Place]:
    engine = f'[engines.cluster]\ntype = "spark"\nurl = "thrift://127.0.0.1:{silent.getsockname()[1]}"'
    rewrites = 'rewrites = "cluster"\nengine_catalog = "lake"'
    with place(catalog=rewrites, engines=engine, PADDOCK_MAINTENANCE_FAIL_ON_SIGTERM="true") as running:
        yield running


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_a_blocked_thrift_call_is_left_and_the_cleanup_frees_the_table(
    paddock: Place, silent: socket.socket, how: str
) -> None:
    paddock.new_table(how, files=3)
    job = paddock.maintain(how, "rewrite_data_files", "expire_snapshots")
    connection, _ = silent.accept()
    with connection:
        assert connection.recv(1), "its greeting has come, and it waits for ours"
        if how == "cancelled":
            paddock.client.request("POST", f"/api/jobs/{job['id']}/cancel", body={})
        else:
            paddock.up.child("worker").send_signal(signal.SIGTERM)

        ended = paddock.ended(job)

        assert ended["status"] == how
        if how == "failed":
            assert ended["error_message"] == "Worker received SIGTERM"
    assert paddock.cleanup_of(job)["result"]["snapshots"] == []
    assert list(paddock.table(how).metadata.refs) == ["main"]
