"""Size of our Parquet files as they come against Arrow's own writer: zstd 1, the same 128 Ki rows in a group, nothing
else set.

Three tables, made up but shaped as people export them: orders (keys, codes, decimals, times, little text), events of a
web shop (random ids, paths, clients, times), customers (names, addresses, free text). The gain comes from the columns:
dictionaries only where values repeat, zstd 3 where that pays, larger pages, decimals as integers. Random ids compress to
the same bytes in every encoding, so the more a table has of them, the nearer it comes to 1. `delta` and `compact` are the options of those names.

The size does not depend on the machine; CPU is that of this process, encoding on one thread, reading back included.
"""

from __future__ import annotations

import io
import itertools
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.environment import Env
from bench.figures import Figure, at_most, shown
from paddock.exports.writing.options import OutputOptions
from paddock.exports.writing.output import Output
from paddock.storage.drafts import Draft, new_draft_id
from paddock.storage.scratch import Scratch
from paddock.storage.store import open_store

GOAL = 0.8
GROUP_ROWS = 128 << 10
# What an engine sends at once.
BATCH_ROWS = 8_192
START = 1_767_225_600_000_000


async def run(env: Env) -> list[Figure]:
    rows = (2 if env.quick else 4) * GROUP_ROWS
    rounds = 1 if env.quick else 5
    figures, sizes = [], dict.fromkeys(("arrow", "plain", "delta", "compact"), 0)
    for name, make in TABLES.items():
        env.say(f"{name}: {rows:,} rows")
        table = make(random.Random(26), rows)
        measured = [await _round(table) for _ in range(rounds)]
        for writer, (size, _) in measured[0].items():
            sizes[writer] += size
        figures += _figures(name, table, measured)
    total = {writer: [size / sizes["arrow"]] for writer, size in sizes.items()}
    return [
        at_most("all three tables: size / Arrow's", total["plain"], GOAL, note="plain, which every reader knows"),
        shown("all three tables, delta: size / Arrow's", total["delta"], "x", note="not for fastparquet"),
        shown("all three tables, compact: size / Arrow's", total["compact"], "x"),
        *figures,
    ]


Measured = dict[str, tuple[int, float]]


def _figures(name: str, table: pa.Table, measured: Sequence[Measured]) -> list[Figure]:
    first = measured[0]
    megabytes = f"{first['arrow'][0] / 1e6:.1f} MB by Arrow's, {table.nbytes / 1e6:.0f} MB of Arrow"
    figures = []
    for writer, label in (("plain", name), ("delta", f"{name}, delta"), ("compact", f"{name}, compact")):
        note = megabytes if writer == "plain" else None
        figures.append(shown(f"{label}: size / Arrow's", [first[writer][0] / first["arrow"][0]], "x", note=note))
        figures.append(shown(f"{label}: CPU / Arrow's", [each[writer][1] / each["arrow"][1] for each in measured], "x"))
    return figures


async def _round(table: pa.Table) -> Measured:
    return {
        "arrow": _by_arrow(table),
        "plain": await _by_paddock(table, OutputOptions()),
        "delta": await _by_paddock(table, OutputOptions(encoding="delta")),
        "compact": await _by_paddock(table, OutputOptions(encoding="compact")),
    }


def _by_arrow(table: pa.Table) -> tuple[int, float]:
    sink, started = io.BytesIO(), time.process_time()
    pq.write_table(table, sink, compression="zstd", compression_level=1, row_group_size=GROUP_ROWS)
    return len(sink.getvalue()), time.process_time() - started


async def _by_paddock(table: pa.Table, options: OutputOptions) -> tuple[int, float]:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Scratch(Path(folder) / "scratch", 4 << 30)
        try:
            draft = Draft(open_store(f"{folder}/store"), "bench", new_draft_id())
            # Groups are cut by rows alone, as Arrow's are.
            output = Output(draft, scratch, table.schema, "parquet", options, group_bytes=1 << 30)
            started = time.process_time()
            for batch in table.to_batches(max_chunksize=BATCH_ROWS):
                await output.write(batch)
            parts = await output.close()
            return sum(part.bytes for part in parts), time.process_time() - started
        finally:
            scratch.close()


def orders(chance: random.Random, rows: int) -> pa.Table:
    skus = [f"{chance.choice('ABCDEFGH')}{chance.randrange(10**6):06d}-{chance.choice('SMLX')}" for _ in range(5_000)]
    prices = {sku: Decimal(chance.randrange(99, 50_000)) / 100 for sku in skus}
    sold = chance.choices(skus, cum_weights=_zipf(len(skus)), k=rows)
    amounts = chance.choices(range(1, 13), cum_weights=_zipf(12), k=rows)
    times = _times(chance, rows)
    return pa.table(
        {
            "order_id": pa.array(range(81_000_000, 81_000_000 + rows), pa.int64()),
            "customer_id": pa.array([chance.randrange(400_000) for _ in range(rows)], pa.int64()),
            "status": chance.choices(
                ["delivered", "shipped", "paid", "returned", "cancelled"], [80, 8, 6, 4, 2], k=rows
            ),
            "country": chance.choices(["DE", "FR", "PL", "NL", "AT", "IT", "ES"], [40, 20, 12, 10, 8, 6, 4], k=rows),
            "channel": chance.choices(["web", "app", "shop", "phone"], [50, 35, 12, 3], k=rows),
            "sku": sold,
            "quantity": pa.array(amounts, pa.int32()),
            "price": pa.array([prices[sku] for sku in sold], pa.decimal128(12, 2)),
            "total": pa.array([prices[sku] * n for sku, n in zip(sold, amounts, strict=True)], pa.decimal128(14, 2)),
            "discount": [chance.choice([0.0, 0.0, 0.0, 0.05, 0.1, 0.15]) for _ in range(rows)],
            "created_at": pa.array(times, pa.timestamp("us", "UTC")),
            "paid_at": pa.array([at + chance.randrange(3_600_000) * 1_000 for at in times], pa.timestamp("us", "UTC")),
            "ship_date": pa.array([at // 86_400_000_000 + chance.randrange(1, 5) for at in times], pa.date32()),
            "gift": [chance.random() < 0.05 for _ in range(rows)],
            "note": _texts(chance, rows, share=0.06),
        }
    )


def events(chance: random.Random, rows: int) -> pa.Table:
    clients = [f"Mozilla/5.0 (client {number}; build {chance.randrange(10**8)})" for number in range(300)]
    paths = [f"/{chance.choice(['p', 'c', 'search', 'cart'])}/{chance.randrange(10**6)}" for _ in range(20_000)]
    people = [chance.randrange(10**9) for _ in range(60_000)]
    return pa.table(
        {
            "event_id": [chance.randbytes(16).hex() for _ in range(rows)],
            "user_id": pa.array(chance.choices(people, cum_weights=_zipf(len(people)), k=rows), pa.int64()),
            "kind": chance.choices(["view", "click", "add", "buy", "error"], [70, 20, 6, 3, 1], k=rows),
            "path": chance.choices(paths, cum_weights=_zipf(len(paths)), k=rows),
            "client": chance.choices(clients, cum_weights=_zipf(len(clients)), k=rows),
            "at": pa.array(_times(chance, rows), pa.timestamp("us", "UTC")),
            "took_ms": pa.array([int(chance.lognormvariate(4, 1)) for _ in range(rows)], pa.int32()),
            "bytes": pa.array([int(chance.lognormvariate(9, 1.5)) for _ in range(rows)], pa.int64()),
            "score": [chance.random() for _ in range(rows)],
        }
    )


def customers(chance: random.Random, rows: int) -> pa.Table:
    first, last, places = (_words(chance, count) for count in (800, 6_000, 3_000))
    names = [(chance.choice(first), chance.choice(last)) for _ in range(rows)]
    return pa.table(
        {
            "customer_id": pa.array(range(1, rows + 1), pa.int64()),
            "name": [f"{a.title()} {b.title()}" for a, b in names],
            "email": [f"{a}.{b}{chance.randrange(100)}@{chance.choice(first)}.example" for a, b in names],
            "city": chance.choices(places, cum_weights=_zipf(len(places)), k=rows),
            "postcode": [f"{chance.randrange(1_000, 99_999):05d}" for _ in range(rows)],
            "born": pa.array([chance.randrange(-9_000, 14_000) for _ in range(rows)], pa.date32()),
            "balance": pa.array(
                [Decimal(int(chance.gauss(0, 50_000))) / 100 for _ in range(rows)], pa.decimal128(18, 2)
            ),
            "segment": chance.choices(["new", "regular", "gold", "lost"], [30, 50, 5, 15], k=rows),
            "since": pa.array([START - chance.randrange(10**14) for _ in range(rows)], pa.timestamp("us")),
            "remark": _texts(chance, rows, share=0.5),
        }
    )


TABLES: dict[str, Callable[[random.Random, int], pa.Table]] = {
    "orders": orders,
    "events": events,
    "customers": customers,
}


def _zipf(count: int) -> list[float]:
    """A few are common, most are rare."""
    return list(itertools.accumulate(1 / rank for rank in range(1, count + 1)))


def _words(chance: random.Random, count: int) -> list[str]:
    return ["".join(chance.choices("etaoinshrdlcumwf", k=chance.randrange(3, 10))) for _ in range(count)]


def _texts(chance: random.Random, rows: int, share: float) -> list[str | None]:
    words = _words(chance, 3_000)
    weights = _zipf(len(words))
    return [
        " ".join(chance.choices(words, cum_weights=weights, k=chance.randrange(4, 20)))
        if chance.random() < share
        else None
        for _ in range(rows)
    ]


def _times(chance: random.Random, rows: int) -> list[int]:
    """One after another, as a log has them."""
    return list(itertools.accumulate((chance.randrange(4_000_000) for _ in range(rows)), initial=START))[:rows]
