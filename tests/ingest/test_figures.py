"""What waits of a source is told while a run of it lives, and no longer."""

from prometheus_client import REGISTRY

from paddock.ingest import figures
from paddock.jobs import wire
from tests.ingest.conftest import NUMBERS, SEVENS, Bench
from tests.playing import PlayedWorker


def waiting(source: str) -> float | None:
    return REGISTRY.get_sample_value("paddock_ingest_waiting_bytes", {"source": source})


async def test_what_waits_is_a_gauge_of_live_runs(bench: Bench) -> None:
    bench.source("numbers", config={"total": 2})
    run = await bench.start("numbers")
    await figures.sample(bench.core)
    assert waiting("numbers") == 0

    await bench.ended(run)
    await figures.sample(bench.core)
    assert waiting("numbers") is None


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"paddock_ingest_{name}", labels) or 0


async def test_what_a_run_did_is_counted(bench: Bench) -> None:
    """The counters are the process's: the source has a name that no other test has."""
    twice = NUMBERS.replace("for n in range(after + 1, last + 1)", "for n in [1, *range(after + 1, last)]")
    bench.hook("sevens", "import os, sys; sys.exit(64) if os.environ['PADDOCK_BATCH'] == '1' else None\n" + SEVENS)
    bench.source("counted", twice, config={"total": 24}, batch_size=12, hooks=["sevens"])
    before = figures_of("counted")
    run = await bench.run("counted")
    assert (run.status, run.failed_batches) == ("completed", 1)
    now = figures_of("counted")
    assert {name: now[name] - before[name] for name in now} == {
        "batches published": 1,
        "batches failed": 1,
        "step failures": 1,
        "runs": 1,
        "records published": 9,
        "records rejected": 1,
        "records error": 1,
        "records duplicate": 1,
    }


def figures_of(source: str) -> dict[str, float]:
    return {
        **{f"batches {one}": counted("batches_total", source=source, outcome=one) for one in ("published", "failed")},
        **{
            f"records {one}": counted("records_total", source=source, outcome=one)
            for one in ("published", "rejected", "error", "duplicate")
        },
        "step failures": counted("step_failures_total", step="hooks", category="bad_input"),
        "runs": counted("run_seconds_count", outcome="completed"),
    }


async def test_what_finds_no_place_is_a_gauge_while_somebody_waits(bench: Bench) -> None:
    bench.source("numbers")
    run = await bench.start("numbers")
    kind, namespace = "run_ingester:kubernetes", "place-of-counting"
    report = f'{{"phase": "waiting for the cluster", "namespace": "{namespace}", "unscheduled": 3}}'
    async with bench.core.db.transaction() as tx:
        await tx.execute("UPDATE jobs SET kind = $1 WHERE group_id = $2", kind, run.group_id)
    link = bench.core.link()
    registered = await link.register(wire.Register(worker_id="w", version="test", kinds=[kind], slots=1))
    [attempt] = await PlayedWorker(link, registered.session).claim(kind)
    async with bench.core.db.transaction() as tx:
        await tx.execute("UPDATE jobs SET report = $1 WHERE group_id = $2", report, run.group_id)
    await figures.sample(bench.core)
    assert counted("unscheduled", namespace=namespace) == 3
    await attempt.finish("permanent")
    await figures.sample(bench.core)
    assert REGISTRY.get_sample_value("paddock_ingest_unscheduled", {"namespace": namespace}) is None
