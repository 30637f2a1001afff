"""What people see of a running job: reports and log lines, bounded and without secrets."""

import re
import time
from itertools import pairwise
from uuid import UUID, uuid4

import pytest
from prometheus_client import CollectorRegistry

from paddock.clock import ManualClock
from paddock.jobs import wire
from paddock.jobs.link import LinkDown
from paddock.metrics import Metrics
from paddock.worker.shipping import Shipper
from tests.worker.conftest import Start
from tests.worker.plane import Plane, PlaneJob, until


def text(job: PlaneJob) -> str:
    return "".join(item.lines for item in job.logs)


async def test_lines_of_the_turn_of_libraries_and_of_threads_arrive(plane: Plane, start: Start) -> None:
    job = plane.add("talks")
    start()
    await until(lambda: "from a thread" in text(job))

    lines = text(job).splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warning a library says hello", lines[0])
    assert lines[1].endswith(" info two")
    assert lines[2] == "  lines token=*** rows=3"
    assert lines[3].endswith(" info from a thread")


@pytest.mark.slow
async def test_what_is_over_the_limit_is_dropped_and_counted(plane: Plane, start: Start) -> None:
    job = plane.add("chatters")
    running = start()

    def dropped() -> int:
        return sum(item.dropped_bytes for item in job.logs)

    # Those that came after a second was over are in another message.
    said = 4_000 * len("2026-01-01T00:00:00.000Z info \n" + "x" * 100)
    await until(lambda: job.logs and len(text(job)) + dropped() >= said)

    assert len(text(job)) + dropped() == said
    assert dropped() > 0
    assert all(len(message.items[0].lines) <= 64 * 1024 for message in plane.sent("logs"))
    assert running.worker.metrics.log_bytes_dropped._value.get() == dropped()


@pytest.fixture
def sent() -> list[wire.LogItem]:
    return []


async def test_lines_go_at_most_once_a_second_and_numbered(sent: list[wire.LogItem]) -> None:
    clock, calls, away = ManualClock(), 0, False

    async def send(logs: wire.Logs) -> None:
        nonlocal calls
        calls += 1
        if away:
            raise LinkDown("away")
        sent.extend(logs.items)

    shipper = Shipper(send, clock, Metrics(CollectorRegistry()))
    job, attempt = uuid4(), uuid4()
    import asyncio

    task = asyncio.create_task(shipper.run())
    for _ in range(50):
        shipper.add(job, attempt, "line\n")
        await clock.advance(0.1)
    assert 4 <= calls <= 5
    assert [item.seq for item in sent] == list(range(1, len(sent) + 1))

    away = True
    for _ in range(1_000):
        shipper.add(job, attempt, "x" * 1_000)
        await clock.advance(0.1)
    away = False
    before = len(sent)
    await clock.advance(3)
    task.cancel()

    after = sent[before:]
    assert sum(len(item.lines) for item in after) <= 130 * 1024, "an outage does not fill the memory"
    assert sum(len(item.lines) + item.dropped_bytes for item in after) >= 999_000
    assert [item.seq for item in sent] == sorted({item.seq for item in sent})


@pytest.mark.slow
async def test_reports_go_at_most_once_a_second_and_the_latest_wins(
    plane: Plane, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.beat_seconds = 60
    job = plane.add("probe", progress=200, sleep_seconds=2.5)
    beat, heard = plane.beat, list[tuple[float, wire.Beat]]()

    async def noted(session: UUID, message: wire.Beat) -> wire.Verdicts:
        if message.holding and message.holding[0].report:
            heard.append((time.monotonic(), message))
        return await beat(session, message)

    monkeypatch.setattr(plane, "beat", noted)
    start()
    await until(lambda: job.status == "completed")

    assert len(heard) >= 2
    assert all(later - sooner > 0.99 for (sooner, _), (later, _) in pairwise(heard))
    assert not any(message.renew for _, message in heard)
    steps = [message.holding[0].report["step"] for _, message in heard if message.holding[0].report]
    assert steps == sorted(set(steps))


async def test_a_report_that_could_not_be_sent_is_sent_later(plane: Plane, start: Start) -> None:
    plane.outage("beat")
    job = plane.add("forever")
    start()
    await until(lambda: plane.calls["beat"] > 3)
    plane.back()
    await until(lambda: job.report == {"phase": "running"})
