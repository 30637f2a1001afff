import io
import json
import logging
import sys
from datetime import datetime
from uuid import UUID

import pytest
import structlog

from paddock import log

pytestmark = pytest.mark.usefixtures("logging_put_back")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_is_json_with_time_level_and_context(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "auto")
    context = {"request_id": "r1", "job": "j1", "attempt": "a1", "worker": "w1"}

    with structlog.contextvars.bound_contextvars(**context):
        structlog.get_logger().info("claimed", n=3, id=UUID(int=1))

    [line] = lines(capsys)
    stamp = str(line.pop("timestamp"))
    assert stamp.endswith("Z")
    assert datetime.fromisoformat(stamp).utcoffset() is not None
    assert line == {**context, "event": "claimed", "level": "info", "n": 3, "id": str(UUID(int=1))}


def test_libraries_log_through_the_same_chain(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")

    with structlog.contextvars.bound_contextvars(job="j1"):
        logging.getLogger("asyncpg").warning("connect %s", "postgresql://u:hunter2@db/x")

    [line] = lines(capsys)
    assert line["event"] == "connect postgresql://***@db/x"
    assert (line["logger"], line["level"], line["job"]) == ("asyncpg", "warning", "j1")


def test_levels_below_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("warning", "json")

    structlog.get_logger().info("quiet")
    logging.getLogger("uvicorn.error").info("quiet")
    structlog.get_logger().warning("heard")

    assert [line["event"] for line in lines(capsys)] == ["heard"]


@pytest.mark.parametrize(("level", "heard"), [("info", 0), ("debug", 2)])
def test_access_logs_need_debug(capsys: pytest.CaptureFixture[str], level: str, heard: int) -> None:
    log.configure(level, "json")

    logging.getLogger("uvicorn.access").info("GET /")
    logging.getLogger("aiohttp.access").info("GET /")

    assert len(lines(capsys)) == heard


@pytest.mark.parametrize("fmt", ["json", "console"])
def test_no_secret_is_written_in_either_form(capsys: pytest.CaptureFixture[str], fmt: str) -> None:
    log.configure("info", fmt)
    url = "postgresql://u:hunter2@db/x"

    try:
        raise ValueError(url)
    except ValueError as error:
        structlog.get_logger().exception("failed with password=hunter2", url=url, error=error, token="hunter2")
        logging.getLogger("lib").exception("failed with pdk_hunter2")
    with structlog.contextvars.bound_contextvars(url=url):
        structlog.get_logger().info("context", nested={"deep": [{"next_uri": "hunter2", "text": f"at {url}"}]})

    written = capsys.readouterr().err
    assert "Traceback" in written
    assert "hunter2" not in written


def test_whatever_is_logged_the_line_parses(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")

    structlog.get_logger().info(
        "two\nlines", surrogate="\ud800", big=2**70, nan=float("nan"), keys={1: object()}, raw=b"\xff"
    )

    [line] = lines(capsys)
    assert line["event"] == "two\nlines"


def test_a_library_with_bad_arguments_does_not_raise(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")
    ours = logging.getLogger().handlers[-1]  # alone: pytest's own handler does raise

    ours.handle(logging.LogRecord("lib", logging.INFO, "lib.py", 1, "%d", ("not a number",), None))

    assert "lib could not be formatted" in capsys.readouterr().err


def test_a_terminal_gets_readable_coloured_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    log.configure("info", "auto")

    structlog.get_logger().info("claimed", n=3)

    assert "\x1b[" in terminal.getvalue()
    assert "claimed" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")


def test_a_closed_stderr_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    log.configure("info", "json")
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)

    structlog.get_logger().info("nobody hears")
    logging.getLogger("lib").info("nobody hears")


def test_configuring_again_does_not_double_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")
    log.configure("info", "json")

    logging.getLogger("lib").info("once")

    assert len(lines(capsys)) == 1
