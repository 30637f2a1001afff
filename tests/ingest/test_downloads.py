"""A published file comes whole or not at all, whatever lies in its place and however the line breaks."""

import contextlib
import hashlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from paddock.cli import resuming
from paddock.cli.connection import Server
from paddock.cli.errors import CommandFailed
from paddock.client.finding import ServerAddress
from paddock.ingest.commands.ingest_files import fetch_file

ID = "019a8b1e-4c40-7000-9d6e-6f1d3c0a51e7"
BODY = bytes(range(256)) * 40


@dataclass
class Published:
    """Serves one file with ranges, and breaks the line after so many bytes of each answer, and after so many of all."""

    body: bytes = BODY
    sum: str = hashlib.sha256(BODY).hexdigest()
    most: int = 1 << 30
    left: int = 1 << 30
    starts: list[int] = field(default_factory=list)
    url: str = ""

    def fetch(self, to: Path, *, force: bool = False) -> None:
        server = Server(ServerAddress(self.url, None, "the test"))
        try:
            fetch_file(server, ID, to, "records", force=force)
        finally:
            server.close()


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[Published]:
    monkeypatch.setattr(resuming, "FIRST_PAUSE", 0)
    found = Published()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._begin(0)

        def do_GET(self) -> None:
            start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
            found.starts.append(start)
            self._begin(start)
            with contextlib.suppress(ConnectionError):
                part = found.body[start:][: min(found.most, found.left)]
                found.left -= len(part)
                self.wfile.write(part)
            self.close_connection = True

        def _begin(self, start: int) -> None:
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(found.body) - start))
            self.send_header("ETag", f'"{found.sum}"')
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(found.body) - 1}/{len(found.body)}")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found.url = f"http://127.0.0.1:{server.server_port}"
        yield found
        server.shutdown()


def partial_of(to: Path) -> Path:
    return to.with_name(f"{to.name}.partial-{ID}-records")


def test_it_goes_on_where_the_line_broke(published: Published, tmp_path: Path) -> None:
    published.most = 4096
    to = tmp_path / "one.parquet"
    published.fetch(to)
    assert to.read_bytes() == BODY
    assert published.starts == [0, 4096, 8192]
    assert list(tmp_path.iterdir()) == [to]


def test_it_goes_on_where_an_earlier_download_ended(published: Published, tmp_path: Path) -> None:
    published.most, published.left = 1024, 7 * 1024
    to = tmp_path / "one.parquet"
    with pytest.raises(CommandFailed):
        published.fetch(to)
    assert not to.exists()
    assert partial_of(to).read_bytes() == BODY[: 7 * 1024], "more breaks than tries, as long as something comes"

    published.most = published.left = 1 << 30
    published.fetch(to)
    assert to.read_bytes() == BODY
    assert published.starts[-1] == 7 * 1024


def test_what_did_not_arrive_as_it_was_sent_takes_no_place(published: Published, tmp_path: Path) -> None:
    to = tmp_path / "one.parquet"
    to.write_bytes(b"before")
    partial_of(to).write_bytes(b"somebody's")
    with pytest.raises(CommandFailed, match="did not arrive as it was sent"):
        published.fetch(to, force=True)
    assert to.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [to]

    published.fetch(to, force=True)
    assert to.read_bytes() == BODY


def test_a_link_in_the_place_of_the_partial_file_is_not_followed(published: Published, tmp_path: Path) -> None:
    to, other = tmp_path / "one.parquet", tmp_path / "other"
    other.write_bytes(b"theirs")
    partial_of(to).symlink_to(other)
    with pytest.raises(CommandFailed, match="cannot be written"):
        published.fetch(to)
    assert other.read_bytes() == b"theirs"


def test_a_file_that_lies_beside_it_is_left_alone(published: Published, tmp_path: Path) -> None:
    theirs = tmp_path / ".one.parquet.partial"
    theirs.write_bytes(b"theirs")
    published.fetch(tmp_path / "one.parquet")
    assert theirs.read_bytes() == b"theirs"
