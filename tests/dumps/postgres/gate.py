"""A way to a server on which long answers stand still in the middle while it is shut."""

import contextlib
import socket
import threading
from collections.abc import Iterator

# More than the two chunks that a dump has before it writes the first, and less than a dump of the tests has.
PASSES = 10 << 20


class Gate:
    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._open = threading.Event()
        self._open.set()
        threading.Thread(target=self._accept, daemon=True).start()

    @contextlib.contextmanager
    def shut(self) -> Iterator[None]:
        """Of each connection no more than the first `PASSES` bytes come through."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def close(self) -> None:
        self._open.set()
        # Closing alone does not end an accept that waits.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._server_port)) as server:
            asking = threading.Thread(target=self._carry, args=(client, server, None), daemon=True)
            asking.start()
            self._carry(server, client, PASSES)
            asking.join()

    def _carry(self, source: socket.socket, target: socket.socket, passes: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if passes is not None and passed >= passes:
                    self._open.wait()
                target.sendall(data)
                passed += len(data)
        # Whoever is gone on one side is gone on the other, though answers stand still.
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
