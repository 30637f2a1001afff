"""A running `paddock up` with databases to dump, and a proxy that cuts downloads."""

import contextlib
import http.client
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import apsw

CONFIGURATION = """
[engines.files]
type = "duckdb"
[engines.ledger]
type = "postgres"
url = "postgresql://nobody@127.0.0.1:1/ledger"
password_env = "NOT_SET_ANYWHERE"
[engines.cluster]
type = "trino"
url = "http://127.0.0.1:1"
user = "paddock"
[destinations.lake]
url = "file:///sys/lake"
[dumps]
part_bytes = 5242880
[dumps.databases.shop]
type = "sqlite"
path = "shop.db"
[dumps.databases.empty]
type = "sqlite"
path = "empty.db"
[dumps.databases.indexed]
type = "sqlite"
path = "indexed.db"
[dumps.databases.elsewhere]
type = "sqlite"
path = "not-here.db"
[dumps.databases.away]
type = "postgres"
url = "postgresql://nobody@127.0.0.1:1/books"
[dumps.databases.broken]
type = "sqlite"
path = "broken.db"
"""
ORDERS = 60_000


def write_databases(folder: Path) -> None:
    shop = apsw.Connection(str(folder / "shop.db"))
    shop.execute("PRAGMA journal_mode = WAL").fetchall()
    shop.execute("CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT); CREATE TABLE orders(id INTEGER, note TEXT)")
    with shop:
        shop.executemany("INSERT INTO customer VALUES(?, ?)", [(number, f"it's; {number}") for number in range(50)])
        notes = ((number, f"note {number * 7919:x} " * 10) for number in range(ORDERS))
        shop.executemany("INSERT INTO orders VALUES(?, ?)", notes)
    shop.close()
    empty = apsw.Connection(str(folder / "empty.db"))
    empty.execute("PRAGMA journal_mode = WAL").fetchall()
    empty.execute("CREATE TABLE bare(id INTEGER)")
    empty.close()
    indexed = apsw.Connection(str(folder / "indexed.db"))
    indexed.execute("PRAGMA journal_mode = WAL").fetchall()
    indexed.execute(
        "CREATE TABLE notes(id INTEGER); CREATE VIRTUAL TABLE words USING fts5(a, content='', columnsize=0)"
    )
    indexed.close()
    (folder / "broken.db").write_text("This is no database. " * 100)


@dataclass
class Cutting:
    """Passes everything on, but ends each download after so many bytes. The last number goes for all that follow."""

    upstream: str
    after: list[int]
    url: str = ""
    # Until this is set, a download goes on no further, and is not cut either.
    held: threading.Event | None = None
    # Of each download: what it asked for, and what the answer was.
    ranges: list[tuple[str | None, str | None, int]] = field(default_factory=list)


@contextlib.contextmanager
def cutting(proxy: Cutting) -> Iterator[Cutting]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            upstream = http.client.HTTPConnection(urlsplit(proxy.upstream).netloc, timeout=30)
            with contextlib.closing(upstream):
                kept = {
                    name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")
                }
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                upstream.request(self.command, self.path, body, {**kept, "Accept-Encoding": "identity"})
                with upstream.getresponse() as answer:
                    self._pass_on(answer)

        do_HEAD = do_POST = do_DELETE = do_GET  # noqa: N815  as http.server calls them

        def _pass_on(self, answer: http.client.HTTPResponse) -> None:
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "date", "server", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            if self.command == "HEAD":
                return
            if self.path.endswith("/download"):
                asked = (self.headers["Range"], self.headers["If-Range"], answer.status)
                proxy.ranges.append(asked)
                most = proxy.after[min(len(proxy.ranges), len(proxy.after)) - 1]
                self.wfile.write(answer.read(most))
                if proxy.held is not None:
                    proxy.held.wait()
                return
            with contextlib.suppress(OSError):  # the listener has heard enough
                while line := answer.readline():
                    self.wfile.write(line)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        proxy.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()
