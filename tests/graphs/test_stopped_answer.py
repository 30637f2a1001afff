"""A child may have sent all of an answer before it hears that the query is to stop: what was thrown away meanwhile is missing,
and the rest is never taken for the whole."""

import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paddock.child_processes.frames import write_frame
from paddock.graphs.children.talking import DATA, END, HEAD
from paddock.graphs.problems import Problem
from paddock.graphs.queries import receive
from paddock.graphs.query import Asked, Query

ARROW = "application/vnd.apache.arrow.stream"


async def test_an_answer_whose_end_comes_after_its_cancel_is_cut() -> None:
    query = Query(Asked("RETURN 1", {}, "arrow", ARROW, timeout=60, max_rows=10, max_bytes=1 << 20))
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    slot = cast(Any, SimpleNamespace(pipe=reading))
    try:
        query.stop("cancelled")
        for kind, body in (
            (HEAD, f'{{"media_type": "{ARROW}"}}'.encode()),
            (DATA, b"rows"),
            (END, b'{"row_count": 1}'),
        ):
            write_frame(writing, kind, [body])
        await receive(query, slot)
    finally:
        os.close(reading)
        os.close(writing)

    with pytest.raises(Problem) as ended:
        await query.piece()
    assert ended.value.code == "query_cancelled"
