"""A chunk of 5,000 rows at six places of a table of ten million: ours, which goes on from a key, against pages by OFFSET,
as StarbaseDB asks for them.

CPU of a chunk at each place; the cost of the whole table is the sum over all its chunks, with straight lines between the
places. Both only read: rendering would weigh the same on both sides.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import apsw

from bench.environment import Env
from bench.figures import Figure, at_least, shown

ROWS = 10_000_000
QUICK_ROWS = 500_000
CHUNK = 5_000
PLACES = 6
REPEATED = 5
GOAL = 20.0


async def run(env: Env) -> list[Figure]:
    rows = QUICK_ROWS if env.quick else ROWS
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as folder:
        database = apsw.Connection(str(Path(folder) / "large.db"))
        database.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off")
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, customer INT, price REAL, status TEXT, at INT)")
        with database:
            database.execute(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
                "INSERT INTO t SELECT i, i * 7919 % 1000000, i / 100.0, 'shipped', 1700000000 + i FROM n",
                (rows,),
            )
        places = [round(share * (rows - CHUNK) / (PLACES - 1)) for share in range(PLACES)]
        offset = [_cost(partial(_by_offset, database, at)) for at in places]
        keyset = [_cost(partial(_by_key, database, at)) for at in places]
        database.close()
    whole = [_integral(places, costs) / CHUNK for costs in (offset, keyset)]
    return [
        at_least("whole table: OFFSET / keyset", [whole[0] / whole[1]], GOAL, note=f"{rows:,} rows, chunks of {CHUNK:,}"),
        *(
            shown(f"from row {at:,}: OFFSET / keyset", [theirs / ours], "x", note=f"{1000 * theirs:.1f} ms / {1000 * ours:.1f} ms")
            for at, theirs, ours in zip(places, offset, keyset, strict=True)
        ),
        shown("last chunk / first, keyset", [keyset[-1] / keyset[0]], "x"),
    ]  # fmt: skip


def _by_offset(database: apsw.Connection, at: int) -> None:
    database.execute("SELECT * FROM t LIMIT ? OFFSET ?", (CHUNK, at)).fetchall()


def _by_key(database: apsw.Connection, at: int) -> None:
    database.execute("SELECT * FROM t WHERE id > ? ORDER BY id LIMIT ?", (at, CHUNK)).fetchall()


def _cost(page: Callable[[], None]) -> float:
    page()
    samples = []
    for _ in range(REPEATED):
        before = time.process_time()
        page()
        samples.append(time.process_time() - before)
    return statistics.median(samples)


def _integral(places: list[int], costs: list[float]) -> float:
    steps = zip(places, places[1:], costs, costs[1:], strict=False)
    return sum((after - before) * (first + last) / 2 for before, after, first, last in steps)
