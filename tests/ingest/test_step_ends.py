"""What the end of a command means for its step, and which answers of a hook count."""

from typing import Any
from uuid import uuid4

import pytest

from paddock.ingest import fetching, hooking
from paddock.ingest.launching import StepFolder
from paddock.ingest.model import BatchPayload, Fetched, FetchPayload, Hooked
from paddock.ingest.pipeline import SHARED
from paddock.ingest.resources import IngestResources
from paddock.ingest.trying import turn_of
from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.outcomes import Done, Outcome, PermanentFailure, TransientFailure
from tests.ingest.conftest import SEVENS, Bench


def a_fetch() -> FetchPayload:
    return FetchPayload(run_id=str(uuid4()), source="numbers", batch=0, batch_size=10)


async def fetched(bench: Bench, script: str, *, failures: int = 0) -> Outcome:
    bench.source("numbers", script)
    turn = turn_of(a_fetch())
    turn.failure_count = failures
    return await fetching.run(turn, IngestResources(bench.config))


async def test_exit_75_is_tried_later(bench: Bench) -> None:
    outcome = await fetched(bench, "print('busy'); raise SystemExit(75)")
    assert isinstance(outcome, TransientFailure)
    assert (outcome.error.code, outcome.unclassified, outcome.budget) == ("try_later", False, "work")
    assert outcome.error.traceback == "busy"


async def test_a_signal_that_nobody_sent_is_forgiven_once(bench: Bench) -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    first = await fetched(bench, script)
    assert isinstance(first, TransientFailure)
    assert (first.error.code, first.error.message.endswith("was killed by signal 9, which Paddock did not send.")) == (
        "killed",
        True,
    )
    second = await fetched(bench, script, failures=1)
    assert isinstance(second, PermanentFailure)
    assert second.error.code == "killed"


async def test_a_secret_that_went_away_stops_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its start the worker had it."""
    monkeypatch.setenv("TOKEN_OF_NUMBERS", "hush")
    bench.source("numbers", secrets={"TOKEN": {"env": "TOKEN_OF_NUMBERS"}})
    monkeypatch.delenv("TOKEN_OF_NUMBERS")
    with pytest.raises(PermanentRunnerError, match="the variable TOKEN_OF_NUMBERS") as missing:
        await fetching.run(turn_of(a_fetch()), IngestResources(bench.config))
    assert missing.value.code == "secret_missing"
    assert missing.value.code in SHARED, "every batch would fail alike"


def test_a_store_that_refuses_is_every_batchs_failure() -> None:
    assert {"store_denied", "store_no_bucket"} <= SHARED


PASSED, REJECTED, FAILED = "features.jsonl", "rejections.jsonl", "errors.jsonl"
ONE, TWO = '{"id": 1, "features": {}}', '{"id": "2", "features": {"a": 1}}'


@pytest.mark.parametrize(
    ("files", "words"),
    [
        pytest.param({PASSED: [ONE]}, "no line for 1 of 2 records", id="one is missing"),
        pytest.param({}, "no line for 2 of 2 records", id="none of the three files"),
        pytest.param({PASSED: [ONE, TWO, ONE]}, "more than one line", id="twice in one file"),
        pytest.param({PASSED: [ONE, TWO], REJECTED: ['{"id": 1, "reason": "r"}']}, "more than one line", id="in two"),
        pytest.param(
            {PASSED: [ONE, TWO], FAILED: ['{"id": 3, "error": "e"}']}, "that its batch does not have", id="of another"
        ),
        pytest.param(
            {PASSED: [ONE, '{"id": 2, "stream": "s", "features": {}}']},
            "that its batch does not have",
            id="of another stream",
        ),
    ],
)
async def test_each_record_has_one_answer(bench: Bench, files: dict[str, list[str]], words: str) -> None:
    with pytest.raises(PermanentRunnerError, match=words) as refused:
        await hooked(bench, files)
    assert refused.value.code == "unaccounted_records"


async def test_an_answer_may_be_in_each_of_the_files(bench: Bench) -> None:
    outcome = await hooked(bench, {PASSED: [ONE], FAILED: ['{"id": 2, "error": "e"}']})
    assert isinstance(outcome, Done)
    found = Hooked.model_validate(outcome.result)
    assert (found.passed, found.rejected, found.errors) == (1, 0, 1)


async def hooked(bench: Bench, files: dict[str, list[str]]) -> Outcome:
    """The end of a hook that wrote these lines for a batch of the records 1 and 2."""
    bench.hook("sevens", SEVENS)
    bench.source("numbers", hooks=["sevens"])
    given = IngestResources(bench.config)
    fetch = a_fetch()

    async def fetches(_turn: object, _given: object, folder: StepFolder) -> None:
        (folder.outputs / "records.jsonl").write_text('{"id": 1, "data": {}}\n{"id": 2, "data": {}}\n')
        (folder.outputs / "session.json").write_text('{"session": 1, "has_more": false}')

    async def answers(_turn: object, _given: object, _name: str, folder: StepFolder, _copy: Any) -> None:
        for name, lines in files.items():
            (folder.outputs / name).write_text("".join(f"{line}\n" for line in lines))

    outcome = await fetching.run(turn_of(fetch), given, fetches)
    assert isinstance(outcome, Done)
    found = Fetched.model_validate(outcome.result)
    [batch] = found.batches
    payload = BatchPayload(
        run_id=fetch.run_id,
        source="numbers",
        batch=0,
        manifest=batch.manifest,
        sha256=batch.sha256,
        fetched_at=found.fetched_at,
    )
    return await hooking.run(turn_of(payload), given, answers)
