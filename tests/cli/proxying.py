"""Something between the command line and its server that spoils the stream, as proxies do."""

import contextlib
import http.client
import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

Fate = Literal["whole", "cut", "silent", "refused"]
REFUSAL = b'{"error": {"code": "too_many_streams", "message": "This token has 20 streams open already."}}'


@dataclass
class Proxy:
    upstream: str
    # What happens to the first stream, the second, and so on; the last one goes for all that follow.
    fates: list[Fate]
    # Called before the server is asked for the stream with this number, once it was, and after the cut. They count from 1.
    at_ask: Callable[[int], object] = lambda _: None
    at_begin: Callable[[int], object] = lambda _: None
    at_cut: Callable[[int], object] = lambda _: None
    url: str = ""
    # For each stream: what was asked for, and the place to go on from.
    streams: list[tuple[dict[str, list[str]], str | None]] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)

    def fate(self) -> Fate:
        return self.fates[min(len(self.streams), len(self.fates)) - 1]


@contextlib.contextmanager
def running_proxy(proxy: Proxy) -> Iterator[Proxy]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            if self.path.startswith("/api/stream"):
                proxy.at_ask(len(proxy.streams) + 1)
            with contextlib.closing(
                http.client.HTTPConnection(urlsplit(proxy.upstream).netloc, timeout=30)
            ) as upstream:
                kept = {
                    name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")
                }
                upstream.request("GET", self.path, headers={**kept, "Accept-Encoding": "identity"})
                with upstream.getresponse() as answer:
                    if self.path.startswith("/api/stream"):
                        self._spoil(answer)
                    else:
                        proxy.reads.append(self.path)
                        self._pass_on(answer.status, answer.read())

        def _spoil(self, answer: http.client.HTTPResponse) -> None:
            proxy.streams.append((parse_qs(urlsplit(self.path).query), self.headers["Last-Event-ID"]))
            number, fate = len(proxy.streams), proxy.fate()
            if fate == "refused":
                self._pass_on(429, REFUSAL)
                return
            proxy.at_begin(number)
            self._stream(answer, fate)
            proxy.at_cut(number)

        def _pass_on(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _stream(self, answer: http.client.HTTPResponse, fate: Fate) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            if fate == "silent":
                self.wfile.flush()
                self.rfile.read(1)  # until the listener has had enough
                return
            with contextlib.suppress(OSError):  # the listener has heard enough
                while line := answer.readline():
                    self.wfile.write(line)
                    if fate == "cut" and line.startswith(b"id:"):
                        self.wfile.write(b"\n")
                        return

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
