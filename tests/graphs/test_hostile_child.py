"""The engine child may have been taken over: what it sends is bounded and checked, and nothing of it is believed."""

import asyncio
import json
import os
from collections.abc import Iterator

import pytest

from paddock.child_processes.frames import HEADER, write_frame
from paddock.child_processes.spawning import large_pipe
from paddock.graphs.children.talking import DATA, END, ERROR, HEAD, MOST_FRAME_BYTES, READY
from paddock.graphs.engine import Slot
from paddock.graphs.problems import Problem
from paddock.graphs.queries import AROUND_BYTES, ChildDiedInQuery, receive
from paddock.graphs.query import Asked, Query
from paddock.graphs.spawning import ChildLied


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ours, theirs = large_pipe()
    yield ours, theirs
    for fd in (ours, theirs):
        try:
            os.close(fd)
        except OSError:
            continue  # the test closed it


def asked(max_bytes: int = 1000) -> Query:
    return Query(Asked("RETURN 1", {}, "json", "application/json", 60, 10, max_bytes))


def head(media_type: str = "application/json") -> tuple[bytes, bytes]:
    return HEAD, json.dumps({"media_type": media_type}).encode()


@pytest.mark.parametrize(
    "frames",
    [
        [(b"?", b"{}")],
        [(READY, b"{}")],
        [(DATA, b"before its head")],
        [(END, b"{}")],
        [head("text/html")],
        [(HEAD, b"no json")],
        [(HEAD, b"[]")],
        [head(), head()],
        [head(), (END, b"no json")],
        [(ERROR, b"\xff")],
    ],
)
async def test_frames_out_of_turn_end_the_child(pipe: tuple[int, int], frames: list[tuple[bytes, bytes]]) -> None:
    for kind, body in frames:
        write_frame(pipe[1], kind, [body])
    with pytest.raises(ChildLied):
        await receive(asked(), Slot(0, pipe[0]))


async def test_a_frame_without_end_is_not_read(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], HEADER.pack(DATA, MOST_FRAME_BYTES + 1))
    with pytest.raises(ChildLied, match="announced"):
        await receive(asked(), Slot(0, pipe[0]))


async def test_an_answer_larger_than_its_limit_is_not_passed_on(pipe: tuple[int, int]) -> None:
    write_frame(pipe[1], *_parts(head()))
    piece = bytes(256 * 1024)
    query = asked()

    async def send() -> None:
        for _ in range((query.asked.max_bytes + AROUND_BYTES) // len(piece) + 2):
            await asyncio.to_thread(write_frame, pipe[1], DATA, [piece])

    async def read() -> None:
        while await query.piece() is not None:
            pass

    sending, reading = asyncio.create_task(send()), asyncio.create_task(read())
    with pytest.raises(ChildLied, match="larger"):
        await receive(query, Slot(0, pipe[0]))
    reading.cancel()
    await sending


async def test_a_pipe_that_ends_in_the_middle_of_a_frame_is_a_death(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], HEADER.pack(DATA, 100) + b"half of it")
    os.close(pipe[1])
    with pytest.raises(ChildDiedInQuery):
        await receive(asked(), Slot(0, pipe[0]))


async def test_an_error_is_taken_apart_and_only_what_is_known_of_it_is_said(pipe: tuple[int, int]) -> None:
    facts = {
        "code": "internal_error",
        "message": "x" * 100_000,
        "hint": {"not": "text"},
        "details": {"line": 1, "column": "2", "secret": "s"},
        "status": 200,
    }
    write_frame(pipe[1], ERROR, [json.dumps(facts).encode()])
    query = asked()
    await receive(query, Slot(0, pipe[0]))

    problem = query.ended
    assert isinstance(problem, Problem)
    assert (problem.status, problem.code, problem.hint, problem.details) == (422, "query_failed", None, {"line": 1})
    assert len(problem.message) == 4000


def _parts(frame: tuple[bytes, bytes]) -> tuple[bytes, list[bytes]]:
    return frame[0], [frame[1]]
