"""Downloads from servers that are broken or hostile: nothing is written outside the folder that was named."""

import contextlib
import hashlib
import http.server
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest

from paddock.cli import resuming
from paddock.cli.connection import Server
from paddock.cli.downloading import fetch, wanted
from paddock.cli.errors import CommandFailed
from paddock.client.finding import ServerAddress

ID = "019a8b1e-4c40-7000-9d6e-6f1d3c0a51e7"


@dataclass
class Hostile:
    """Serves these files under these very names."""

    files: dict[str, bytes]
    sums: dict[str, str] = field(default_factory=dict)
    sent_more: bytes = b""
    asked: list[str] = field(default_factory=list)
    url: str = ""
    # Called while a file is asked for.
    before_file: Callable[[], object] | None = None

    def answer(self, target: str) -> tuple[str, bytes]:
        parts = urlsplit(target)
        self.asked.append(parts.path)
        if parts.path.endswith("/files"):
            listed = [
                {"name": name, "rows": 1, "bytes": len(body), "sha256": self.sums.get(name, _sum(body))}
                for name, body in self.files.items()
            ]
            return "application/json", orjson.dumps({"data": {"files": listed}})
        if self.before_file is not None:
            self.before_file()
        return "application/octet-stream", self.files[parse_qs(parts.query)["file"][0]] + self.sent_more


def _sum(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    found = Hostile({})

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, body = found.answer(self.path)
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # who was interrupted reads no more
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found.url = f"http://127.0.0.1:{server.server_port}"
        yield found
        server.shutdown()


def download(hostile: Hostile, to: Path, id: str = ID, *, slash: bool = False) -> None:
    server = Server(ServerAddress(hostile.url, None, "the test"))
    try:
        fetch(server, {"id": id}, wanted(f"{to}/" if slash else str(to)))
    finally:
        server.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    return tmp_path / "inner"


def written(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "name",
    ["../escaped", "a/../../escaped", "/escaped", "a\\..\\..\\escaped", "C:\\escaped", "\\escaped", "", ".", "a\0b"],
)
def test_a_name_that_leads_out_of_the_folder_is_refused(hostile: Hostile, folder: Path, name: str) -> None:
    hostile.files = {"fine.parquet": b"fine", name: b"not fine"}

    with pytest.raises(CommandFailed, match="would not be inside"):
        download(hostile, folder / "out")
    assert not written(folder.parent)
    assert hostile.asked == [f"/api/exports/{ID}/files"]


def test_an_id_is_no_path(hostile: Hostile, folder: Path) -> None:
    with pytest.raises(CommandFailed, match="no id"):
        download(hostile, folder / "out", "x/../../../escaped")


def test_a_link_in_the_place_of_a_folder_is_not_followed(hostile: Hostile, folder: Path) -> None:
    hostile.files = {"a=1/part.parquet": b"one", "a=2/part.parquet": b"two"}
    (folder / f"out.partial-{ID}").mkdir()
    (folder.parent / "elsewhere").mkdir()
    (folder / f"out.partial-{ID}" / "a=2").symlink_to(folder.parent / "elsewhere")

    with pytest.raises(CommandFailed, match="by a link"):
        download(hostile, folder / "out")
    assert not written(folder.parent / "elsewhere")


def test_a_link_in_the_place_of_the_file_is_not_followed(hostile: Hostile, folder: Path) -> None:
    hostile.files = {"part.parquet": b"one"}
    (folder.parent / "precious").write_bytes(b"")
    (folder / f"out.parquet.partial-{ID}").symlink_to(folder.parent / "precious")

    with pytest.raises(CommandFailed, match="by a link"):
        download(hostile, folder / "out.parquet")
    assert (folder.parent / "precious").read_bytes() == b""


def test_a_folder_reached_by_a_link_of_ones_own_is_fine(hostile: Hostile, folder: Path) -> None:
    hostile.files = {"a=1/part.parquet": b"one"}
    (folder.parent / "short").symlink_to(folder)

    download(hostile, folder.parent / "short" / "out")

    assert (folder / "out" / "a=1" / "part.parquet").read_bytes() == b"one"


def test_a_file_where_another_needs_a_folder_is_a_sentence(hostile: Hostile, folder: Path) -> None:
    hostile.files = {"a": b"one", "a/b": b"two"}

    with pytest.raises(CommandFailed, match="cannot be written"):
        download(hostile, folder / "out")


def test_more_bytes_than_were_told_are_not_written(hostile: Hostile, folder: Path) -> None:
    hostile.files, hostile.sent_more = {"part.parquet": b"one"}, b"x" * 1_000_000

    with pytest.raises(CommandFailed, match="longer than"):
        download(hostile, folder / "out.parquet")
    assert sum(path.stat().st_size for path in written(folder)) <= 3


def test_ctrl_c_tells_how_to_go_on(hostile: Hostile, folder: Path) -> None:
    hostile.files = {"part.parquet": b"one"}
    main = threading.main_thread().ident
    assert main is not None
    hostile.before_file = lambda: signal.pthread_kill(main, signal.SIGINT)

    with pytest.raises(CommandFailed, match="Interrupted; what was downloaded so far is kept") as ended:
        download(hostile, folder / "v1.2 late", slash=True)
    assert ended.value.exit_code == 130
    assert ended.value.hint == f"`paddock exports download {ID} --to '{folder}/v1.2 late/'` resumes it."


def test_a_download_goes_on_though_the_server_knows_no_ranges(
    hostile: Hostile, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = bytes(range(256)) * 1000
    hostile.files = {"part.parquet": body}
    (folder / f"out.parquet.partial-{ID}").write_bytes(body[:100_001])
    monkeypatch.setattr(resuming, "TRIES", 1)

    download(hostile, folder / "out.parquet")

    assert (folder / "out.parquet").read_bytes() == body
