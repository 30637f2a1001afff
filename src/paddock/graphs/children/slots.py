"""Queries side by side in one engine child: a thread, a connection and a pipe for each.

A pipe of its own, because a client that reads slowly must hold up nobody else. The main thread listens for what comes
next and interrupts what is cancelled; it never runs a statement, so it always hears.
"""

import json
import os
import queue
import select
import threading
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from paddock.child_processes.frames import write_frame
from paddock.graphs.children.adapter import GraphEngine
from paddock.graphs.children.answering import Interrupted, Limits, TooLarge, pieces_of
from paddock.graphs.children.explaining import query_failure
from paddock.graphs.children.talking import DATA, DATA_BYTES, END, ERROR, HEAD, say
from paddock.graphs.children.values import Converters, Properties

# The engine forgets an interrupt that comes while it still plans, so it is repeated.
REPEAT_SECONDS = 0.05


def warm_up(engine: GraphEngine) -> None:
    """Whatever is loaded when it is first used is loaded now: later nothing can be opened."""
    connection, converters = engine.connect(), Converters({})
    for text in ("RETURN 1 AS a, 'x' AS b", "RETURN [1] AS a, {x: 1.5} AS b, map([1], [uuid($id)]) AS c"):
        for format in ("json", "csv", "arrow"):
            prepared = connection.prepare(text)
            result = connection.execute(prepared, {"id": str(UUID(int=1))} if "$id" in text else {})
            for _ in pieces_of(result, format, converters, Limits(10, DATA_BYTES, lambda: None), 0.0):
                pass
    connection.close()


class Slots:
    def __init__(self, engine: GraphEngine, pipes: Sequence[int], properties: Properties) -> None:
        converters = Converters(properties)
        self._slots = [Slot(engine, pipe, converters) for pipe in pipes]

    def serve(self) -> None:
        """Until the server closes our standard input."""
        unread = bytearray()
        while True:
            cancelled = [slot for slot in self._slots if slot.interrupt()]
            if not select.select([0], [], [], REPEAT_SECONDS if cancelled else None)[0]:
                continue
            some = os.read(0, 1 << 16)
            if not some:
                os._exit(0)  # threads inside the engine would hold up an ordinary exit
            unread += some
            *lines, rest = unread.split(b"\n")
            unread[:] = rest
            for line in lines:
                self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        slot = self._slots[message["slot"]]
        if "cancel" in message:
            slot.cancel(message["cancel"])
        else:
            slot.give(message)


class Slot:
    def __init__(self, engine: GraphEngine, pipe: int, converters: Converters) -> None:
        self._engine = engine
        self._pipe = pipe
        self._converters = converters
        self._next: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._mutex = threading.Lock()
        self._number: int | None = None
        self._cancelled = False
        self._connection: Any = None
        threading.Thread(target=self._work, daemon=True).start()

    def give(self, request: dict[str, Any]) -> None:
        with self._mutex:
            self._number, self._cancelled = request["number"], False
        self._next.put(request)

    def cancel(self, number: int) -> None:
        """A number that is not running any more cancels nothing: its place may be another's by now."""
        with self._mutex:
            if self._number == number:
                self._cancelled = True

    def interrupt(self) -> bool:
        """Whether a cancelled query still runs."""
        with self._mutex:
            if self._cancelled and self._connection is not None:
                self._connection.interrupt()
            return self._cancelled and self._number is not None

    def _work(self) -> None:
        while True:
            kind, facts = self._run(self._next.get())
            # Here nothing of the query is left, so that there is memory to say that there was none.
            say(self._pipe, kind, facts)

    def _run(self, request: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
        """The last frame of the query."""
        connection = None
        try:
            connection = self._engine.connect()
            with self._mutex:
                self._connection = connection
            return END, self._answer(connection, request)
        except TooLarge as problem:
            hint = "Ask for less, or for an Arrow stream, which may be larger."
            return ERROR, {"code": "answer_too_large", "message": str(problem), "hint": hint}
        except Exception as problem:
            return ERROR, query_failure(problem)
        finally:
            self._end()
            if connection is not None:
                connection.close()

    def _answer(self, connection: Any, request: dict[str, Any]) -> dict[str, Any]:
        begun = time.perf_counter()
        # One statement only: `execute` of a text would run all that it holds.
        prepared = connection.prepare(request["query"])
        if not prepared.is_success():
            raise RuntimeError(prepared.get_error_message())
        self._check()
        result = connection.execute(prepared, request["parameters"])
        milliseconds = round((time.perf_counter() - begun) * 1000, 3)
        limits = Limits(request["max_rows"], request["max_bytes"], self._check)
        pieces = pieces_of(result, request["format"], self._converters, limits, milliseconds)
        for number, piece in enumerate(pieces):
            if number == 0:
                say(self._pipe, HEAD, {"media_type": pieces.media_type, "rows_found": pieces.rows_found})
            view = memoryview(piece)
            for place in range(0, len(view), DATA_BYTES):
                write_frame(self._pipe, DATA, [view[place : place + DATA_BYTES]])
        result.close()
        return {"row_count": pieces.row_count, "truncated": pieces.truncated}

    def _check(self) -> None:
        if self._cancelled:
            raise Interrupted("Interrupted.")

    def _end(self) -> None:
        """Before the last frame: after it, the server may give this slot to the next query."""
        with self._mutex:
            self._number, self._cancelled, self._connection = None, False, None
