"""Singer taps and Airbyte sources: their messages become batches, their states sessions. A script of the tests plays them."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from paddock.ingest import fetching, messages, runs, tapping
from paddock.ingest.hiding import sums_of
from paddock.ingest.launching import StepFolder
from paddock.ingest.messages import Reader, Said, State
from paddock.ingest.model import Fetched, FetchPayload, Run
from paddock.ingest.outputs import InvalidOutput, Record
from paddock.ingest.resources import IngestResources
from paddock.ingest.trying import turn_of
from paddock.jobs.outcomes import Done, Outcome, PermanentFailure, TransientFailure
from tests.ingest.conftest import Bench

# Gives the numbers after its state up to `total`, a STATE after every `every` of them, and misbehaves as it is told.
SINGER = """
import json, signal, sys, time
args = dict(zip(sys.argv[1::2], sys.argv[2::2]))
config = json.load(open(args["--config"]))
after = json.load(open(args["--state"]))["after"] if "--state" in args else 0
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
def say(**message):
    sys.stdout.write(json.dumps(message) + "\\n")
    sys.stdout.flush()
print("a tap at", after, file=sys.stderr)
say(type="SCHEMA", stream="numbers", schema={}, key_properties=config.get("keys", ["n"]))
say(type="ACTIVATE_VERSION", stream="numbers", version=1)
say(type="NEVER_HEARD_OF", what=[1])
for n in range(after + 1, config["total"] + 1):
    if n == config.get("die_at"):
        sys.exit(config.get("code", 1))
    if n == config.get("torn_at"):
        sys.stdout.write('{"type": "RECORD", "stream": "numbers", "reco'); sys.exit(0)
    say(type="RECORD", stream="numbers", record={"n": n, "token": config.get("token")}, time_extracted="2026-11-16T09:30:00Z")
    if config.get("every") and n % config["every"] == 0:
        say(type="STATE", value={"after": n})
if config.get("last_state"):
    say(type="STATE", value=config["last_state"])
"""


def tap(bench: Bench, *, batch_size: int = 4, secrets: dict[str, Any] | None = None, **config: Any) -> None:
    bench.source("tap", SINGER, protocol="singer", batch_size=batch_size, config=config, secrets=secrets or {})


async def numbers(bench: Bench, source: str = "tap") -> list[int]:
    return [json.loads(row["data"])["n"] for row in await bench.rows(source)]


def code_of(run: Run) -> str:
    assert run.error is not None
    return str(run.error["code"])


async def test_a_tap_runs_to_its_end_and_its_last_state_is_the_session(bench: Bench) -> None:
    tap(bench, total=10, every=3, last_state={"after": 10})
    run = await bench.run("tap")
    assert (run.status, run.next_batch) == ("completed", 3)
    assert await numbers(bench) == list(range(1, 11))
    rows = await bench.rows("tap")
    assert [(row["stream"], row["id"]) for row in rows][:2] == [("numbers", "1"), ("numbers", "2")]
    assert json.loads(await runs.committed_session(bench.core.db, "tap") or "") == {"after": 10}
    tap(bench, total=12, every=3, last_state={"after": 12})
    await bench.run("tap")
    assert await numbers(bench) == list(range(1, 13))


async def test_past_the_bound_it_is_stopped_at_a_state_and_goes_on_from_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tapping, "MOST_BATCHES", 2)
    tap(bench, total=30, every=5, last_state={"after": 30}, batch_size=2)
    run = await bench.run("tap")
    assert run.status == "completed"
    assert await numbers(bench) == list(range(1, 31)), "nothing twice and nothing missing"
    fetches = await bench.core.db.pool("relaxed").fetchval(
        "SELECT count(*) FROM job_history WHERE kind = 'run_ingester' AND status = 'completed'"
    )
    assert fetches > 1


async def test_a_state_that_never_comes_is_no_place_and_the_tap_runs_to_its_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tapping, "MOST_BATCHES", 2)
    tap(bench, total=12, batch_size=2)
    run = await bench.run("tap")
    assert (run.status, run.next_batch) == ("completed", 6)
    assert await runs.committed_session(bench.core.db, "tap") is None


async def test_too_many_batches_without_a_state_fail_with_advice(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tapping, "TOO_MANY", 3)
    tap(bench, total=100, batch_size=1)
    run = await bench.run("tap")
    assert (run.status, code_of(run)) == ("failed", "invalid_output")
    assert await numbers(bench) == []


async def test_what_can_be_listed_of_a_tap_counts_and_the_next_fetch_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "LISTED_BYTES", 2_000)
    tap(bench, total=20, every=3, last_state={"after": 20}, batch_size=1)
    run = await bench.run("tap")
    assert (run.status, run.error) == ("completed", None)
    assert await numbers(bench) == [*range(1, 21)]


async def test_what_came_before_a_state_counts_when_the_tap_dies_after_it(bench: Bench) -> None:
    """It dies at the same record again: then there is no progress, and the run ends with what came before."""
    tap(bench, total=10, every=3, die_at=8, code=64, batch_size=100)
    run = await bench.run("tap")
    assert (run.status, code_of(run)) == ("failed", "bad_input")
    assert await numbers(bench) == [1, 2, 3, 4, 5, 6]
    assert json.loads(await runs.committed_session(bench.core.db, "tap") or "") == {"after": 6}
    tap(bench, total=10, every=3, last_state={"after": 10}, batch_size=100)
    await bench.run("tap")
    assert await numbers(bench) == list(range(1, 11))


async def test_death_between_a_record_and_its_state_publishes_nothing(bench: Bench) -> None:
    tap(bench, total=10, every=5, die_at=4, code=64)
    run = await bench.run("tap")
    assert (run.status, code_of(run), await numbers(bench)) == ("failed", "bad_input", [])


async def test_a_torn_line_is_named(bench: Bench) -> None:
    tap(bench, total=10, torn_at=3)
    run = await bench.run("tap")
    assert (run.status, code_of(run)) == ("failed", "invalid_output")
    assert run.error is not None
    assert "Line 6 " in run.error["message"]


async def test_two_mebibytes_of_state_are_refused(bench: Bench) -> None:
    tap(bench, total=2, last_state="x" * (2 << 20))
    run = await bench.run("tap")
    assert (run.status, code_of(run)) == ("failed", "invalid_output")


async def test_a_limit_ends_fetching_exactly(bench: Bench) -> None:
    tap(bench, total=100, every=3, last_state={"after": 100})
    assert (await bench.run("tap", limit=7)).status == "completed"
    assert await numbers(bench) == [1, 2, 3, 4, 5, 6, 7]


async def test_a_secret_stands_in_its_config_and_nowhere_else(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hush")
    tap(bench, total=1, token="a ${PASSWORD}!", secrets={"PASSWORD": {"env": "DATABASE_PASSWORD"}})
    await bench.run("tap")
    [row] = await bench.rows("tap")
    assert json.loads(row["data"])["token"] == "a hush!"


AIRBYTE = """
import json, sys
assert sys.argv[1] == "read"
args = dict(zip(sys.argv[2::2], sys.argv[3::2]))
config = json.load(open(args["--config"]))
before = json.load(open(args["--state"])) if "--state" in args else []
def say(type, **body):
    print(json.dumps({"type": type, **body}), flush=True)
if "error" in config:
    say("TRACE", trace={"type": "ERROR", "emitted_at": 1, "error": {"message": "no way in", "failure_type": config["error"]}})
    sys.exit(1)
after = {one["stream"]["stream_descriptor"]["name"]: one["stream"]["stream_state"]["after"] for one in before}
say("LOG", log={"level": "INFO", "message": "hello"})
for stream in ("users", "orders"):
    say("TRACE", trace={"type": "ESTIMATE", "emitted_at": 1, "estimate": {"name": stream, "type": "STREAM", "row_estimate": 3}})
    for n in range(after.get(stream, 0) + 1, config["total"] + 1):
        say("RECORD", record={"stream": stream, "emitted_at": 1, "data": {"n": n, "pair": {"a": n, "b": "x"}}})
    say("STATE", state={"type": "STREAM", "sourceStats": {"recordCount": 3}, "stream": {
        "stream_descriptor": {"name": stream}, "stream_state": {"after": config["total"]}}})
"""
CATALOG = {
    "streams": [
        {"stream": {"name": "users"}, "primary_key": [["n"]]},
        {"stream": {"name": "orders", "source_defined_primary_key": [["pair", "a"], ["pair", "b"]]}},
    ]
}


def airbyte(bench: Bench, **config: Any) -> None:
    path = bench.folder / "catalog.json"
    path.write_text(json.dumps(CATALOG))
    bench.source("tap", AIRBYTE, protocol="airbyte", catalog=str(path), config=config)


async def test_an_airbyte_source_keeps_the_newest_state_of_each_stream(bench: Bench) -> None:
    airbyte(bench, total=2)
    assert (await bench.run("tap")).status == "completed"
    rows = await bench.rows("tap")
    assert [(row["stream"], row["id"]) for row in rows] == [
        ("users", "1"),
        ("users", "2"),
        ("orders", '[1,"x"]'),
        ("orders", '[2,"x"]'),
    ]
    session = json.loads(await runs.committed_session(bench.core.db, "tap") or "")
    assert [(one["type"], one["stream"]["stream_state"]) for one in session] == [("STREAM", {"after": 2})] * 2
    airbyte(bench, total=3)
    await bench.run("tap")
    assert [row["id"] for row in await bench.rows("tap")][4:] == ["3", '[3,"x"]']


async def test_a_config_error_of_airbyte_is_permanent(bench: Bench) -> None:
    airbyte(bench, error="config_error")
    run = await bench.run("tap")
    assert (run.status, code_of(run)) == ("failed", "config_error")
    assert run.error is not None
    assert "no way in" in run.error["message"]


def read(protocol: messages.Protocol, *lines: Any) -> list[Any]:
    reader = Reader(protocol)
    return [reader.read(line if isinstance(line, bytes) else json.dumps(line).encode()) for line in lines]


def test_without_a_key_the_record_itself_is_its_id() -> None:
    first, second, again = read("singer", *({"type": "RECORD", "stream": "s", "record": {"n": n}} for n in (1, 2, 1)))
    assert isinstance(first, Record)
    assert first.id == again.id != second.id


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param({"type": "BATCH", "stream": "s", "manifest": []}, "BATCH", id="batch"),
        pytest.param({"type": "RECORD", "stream": "s"}, "RECORD", id="no record"),
        pytest.param({"type": "RECORD", "record": {"n": 1}}, "RECORD", id="no stream"),
        pytest.param({"type": "RECORD", "stream": "s", "record": [1]}, "RECORD", id="no object"),
        pytest.param({"type": "STATE"}, "STATE", id="no value"),
        pytest.param({"type": "STATE", "value": "x" * 200_000}, "200,002", id="a large state"),
        pytest.param(b'{"type": "STATE", "value": {"a": 1e999}}', "no valid STATE", id="a number beyond all"),
        pytest.param(
            b'{"type": "STATE", "value": ' + b"[" * 400 + b"]" * 400 + b"}", "no valid STATE", id="a deep state"
        ),
        pytest.param({"stream": "s"}, "no message", id="no type"),
        pytest.param(b"INFO starting", "no message", id="a log line"),
        pytest.param(b'{"type": "RECORD", "stream": "s", "record": {"n": NaN}}', "no message", id="NaN"),
        pytest.param(b'{"type": "\xff"}', "UTF-8", id="not UTF-8"),
        pytest.param(b'{"type": "x", "y": "' + b"x" * (1 << 20) + b'"}', "longer", id="a long line"),
    ],
)
def test_what_is_no_message_is_named_by_its_line(line: Any, words: str) -> None:
    with pytest.raises(InvalidOutput, match=words) as refused:
        read("singer", {"type": "SCHEMA", "stream": "s", "key_properties": []}, line)
    assert refused.value.message.startswith("Line 2 ")


def test_a_record_without_its_key_is_refused() -> None:
    schema = {"type": "SCHEMA", "stream": "s", "key_properties": ["id"]}
    with pytest.raises(InvalidOutput, match="key"):
        read("singer", schema, {"type": "RECORD", "stream": "s", "record": {"id": None}})


def test_states_of_streams_that_say_nothing_stay() -> None:
    session = '[{"type":"STREAM","stream":{"stream_descriptor":{"name":"a"},"stream_state":{"x":1}}}]'
    reader = Reader("airbyte", states=messages.states_of(session))
    line = {"type": "STATE", "state": {"type": "STREAM", "stream": {"stream_descriptor": {"name": "b"}}}}
    found = reader.read(json.dumps(line).encode())
    assert isinstance(found, State)
    assert [one["stream"]["stream_descriptor"]["name"] for one in json.loads(found.session)] == ["a", "b"]
    shared = {"type": "STATE", "state": {"type": "GLOBAL", "global": {"shared_state": {"lsn": 7}}}}
    found = reader.read(json.dumps(shared).encode())
    assert isinstance(found, State)
    assert json.loads(found.session)[2] == {"type": "GLOBAL", "global": {"shared_state": {"lsn": 7}}}
    legacy = Reader("airbyte").read(b'{"type": "STATE", "state": {"data": {"cursor": 1}}}')
    assert legacy == State('{"cursor": 1}')


@pytest.mark.parametrize(
    "state",
    [
        {"type": "GLOBAL"},
        {"type": "STREAM"},
        {"type": "GLOBAL", "global": 1},
        {"type": "STREAM", "stream": {}},
        {"type": 'X","a":"', "global": {}},
    ],
)
def test_a_state_of_airbyte_that_is_none_is_refused(state: Any) -> None:
    """Kept, it would be a session that nobody can read: not the next run, and not the pages that show it."""
    with pytest.raises(InvalidOutput, match="STATE"):
        read("airbyte", {"type": "STATE", "state": state})


@pytest.mark.parametrize("session", ["[1]", '[{"type":"STREAM"}]', '[{"type":"STREAM","stream":{}}]'])
def test_a_session_that_is_no_list_of_states_is_refused(session: str) -> None:
    with pytest.raises(InvalidOutput, match="states of Airbyte"):
        messages.states_of(session)


async def test_a_secret_in_what_an_airbyte_source_says_is_hidden(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log is on its standard output, and so are the words of its errors."""
    monkeypatch.setenv("DATABASE_PASSWORD", "hush-hush")
    airbyte(bench, total=1, error="config_error")
    text = AIRBYTE.replace("no way in", "no way in with hush-hush").replace(
        'if "error"', 'say("LOG", log={"message": "password=hush-hush"})\nif "error"'
    )
    bench.source("tap", text, **{**bench.sources["tap"], "secrets": {"PASSWORD": {"env": "DATABASE_PASSWORD"}}})
    bench.sources["tap"]["command"] = bench.script("tap", text)
    said: list[str] = []
    payload = FetchPayload(run_id=str(uuid4()), source="tap", batch=0, batch_size=2)
    turn = turn_of(payload)
    monkeypatch.setattr(turn._link, "log", lambda _level, message, _fields: said.append(message))
    outcome = await fetching.run(turn, IngestResources(bench.config))
    assert isinstance(outcome, PermanentFailure)
    assert outcome.error.message.endswith("no way in with ***")
    assert said == ["password=***", "no way in with ***"]


def test_how_much_there_will_be_is_told() -> None:
    trace = {"type": "TRACE", "trace": {"type": "ESTIMATE", "estimate": {"row_estimate": 7}}}
    assert read("airbyte", trace) == [Said(total=7)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"protocol": "airbyte"}, "catalog"), ({"catalog": "/tmp/c.json"}, "catalog"), ({"protocol": "csv"}, "protocol")],
)
def test_a_source_that_cannot_be_is_named_at_the_start(settings: Any, words: str, tmp_path: Path) -> None:
    from paddock.config import ConfigError, load
    from paddock.ingest.source_settings import sources_from

    environ = {"PADDOCK_INGEST_SOURCES": json.dumps({"tap": {"command": ["tap"], **settings}})}
    with pytest.raises(ConfigError, match=words):
        sources_from(load(environ, tmp_path))


async def test_what_a_tap_said_elsewhere_is_read_as_if_it_said_it_now(bench: Bench) -> None:
    """As on a cluster: its standard output is a file, which ends anywhere."""
    tap(bench, batch_size=2)
    lines = [
        {"type": "SCHEMA", "stream": "s", "schema": {}, "key_properties": ["n"]},
        *({"type": "RECORD", "stream": "s", "record": {"n": n}} for n in range(3)),
        {"type": "STATE", "value": {"after": 2}},
    ]
    said = b"".join(json.dumps(line).encode() + b"\n" for line in lines)

    async def fetched(content: bytes, code: int | None = None) -> Outcome:
        async def elsewhere(_turn: object, _resources: object, folder: StepFolder) -> None:
            (folder.outputs / "messages.jsonl").write_bytes(content)
            if code is not None:
                (folder.outputs / "exit-code").write_text(f"{code}\n")

        payload = FetchPayload(run_id=str(uuid4()), source="tap", batch=0, batch_size=2)
        return await fetching.run(turn_of(payload), IngestResources(bench.config), elsewhere)

    whole = await fetched(said)
    assert isinstance(whole, Done)
    found = Fetched.model_validate(whole.result)
    assert ([batch.records for batch in found.batches], found.secret_session, found.has_more) == (
        [2, 1],
        '{"after": 2}',
        False,
    )
    torn = await fetched(said + b'{"type": "REC')
    assert isinstance(torn, Done), "what came before the STATE counts"
    assert Fetched.model_validate(torn.result).has_more
    failed = await fetched(said, 1)
    assert isinstance(failed, Done), "and so where it failed after one"
    assert (Fetched.model_validate(failed.result).secret_session, Fetched.model_validate(failed.result).has_more) == (
        '{"after": 2}',
        True,
    )
    at_once = await fetched(b"", 75)
    assert isinstance(at_once, TransientFailure)
    assert at_once.error.code == "try_later"
    broken = await fetched(b"no message\n")
    assert isinstance(broken, PermanentFailure)
    assert broken.error.code == "invalid_output"


async def test_a_secret_in_what_a_source_said_elsewhere_is_hidden(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster the worker does not know the value: it goes by what the step's pod told of it."""
    monkeypatch.setenv("DATABASE_PASSWORD", "hush-hush")
    airbyte(bench, total=1)
    bench.source("tap", AIRBYTE, **{**bench.sources["tap"], "secrets": {"PASSWORD": {"env": "DATABASE_PASSWORD"}}})
    error = {"message": "no way in with hush-hush", "failure_type": "config_error"}
    lines = [
        {"type": "LOG", "log": {"message": "password=hush-hush"}},
        {"type": "TRACE", "trace": {"type": "ERROR", "error": error}},
    ]
    turn = turn_of(FetchPayload(run_id=str(uuid4()), source="tap", batch=0, batch_size=2))
    turn.secrets["transfer_token"] = "of-this-step"
    said: list[str] = []
    monkeypatch.setattr(turn._link, "log", lambda _level, message, _fields: said.append(message))

    async def elsewhere(_turn: object, _resources: object, folder: StepFolder) -> None:
        (folder.outputs / "messages.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (folder.inputs / "hidden.json").write_bytes(sums_of(["hush-hush"], "of-this-step"))

    outcome = await fetching.run(turn, IngestResources(bench.config), elsewhere)
    assert isinstance(outcome, PermanentFailure)
    assert outcome.error.message.endswith("no way in with ***")
    assert said == ["password=***", "no way in with ***"]
