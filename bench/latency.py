"""Enqueue to start at low load: from the call that enqueues to the first line of the handler, worker idle before."""

from __future__ import annotations

from bench import floor, paddock_peer, pgqueuer_peer
from bench.contenders import Latency, Trickle
from bench.environment import Env
from bench.figures import Figure, at_most, missing, percentile, shown

CONTENDERS: tuple[tuple[str, Latency], ...] = (
    ("floor", floor.latency),
    ("paddock", paddock_peer.latency),
    ("pgqueuer", pgqueuer_peer.latency),
)
SHARES = (("p50", 0.50, 1.3), ("p99", 0.99, 3.0))


async def run(env: Env) -> list[Figure]:
    rounds = 2 if env.quick else 5
    trickle = Trickle(samples=100 if env.quick else 640)  # 5 x 640 = 3,200 samples
    measured: dict[str, list[list[float]]] = {}
    for number in range(rounds):
        for name, latency in CONTENDERS if number % 2 == 0 else CONTENDERS[::-1]:
            async with env.database(f"latency_{name}") as database:
                try:
                    samples = await latency(env, database, trickle)
                except NotImplementedError:
                    continue
            measured.setdefault(name, []).append(samples)
            env.say(f"round {number + 1}: {name}: p50 {1e3 * percentile(samples, 0.5):.2f} ms")

    figures = []
    for label, share, goal in SHARES:
        name = f"paddock / floor, {label}"
        if "paddock" in measured:
            figures.append(at_most(name, _ratios(measured, "paddock", share), goal))
        else:
            figures.append(missing(name, "x", f"<= {goal:g} x"))
        figures.append(shown(f"pgqueuer / floor, {label}", _ratios(measured, "pgqueuer", share), "x"))
    for name, sampled in measured.items():
        everything = [sample for samples in sampled for sample in samples]
        for label, share, _ in SHARES:
            value = 1e3 * percentile(everything, share)
            figures.append(Figure(f"{name}, {label} of {len(everything):,} samples", value, "ms"))
    return figures


def _ratios(measured: dict[str, list[list[float]]], name: str, share: float) -> list[float]:
    pairs = zip(measured[name], measured["floor"], strict=True)
    return [percentile(mine, share) / percentile(theirs, share) for mine, theirs in pairs]
