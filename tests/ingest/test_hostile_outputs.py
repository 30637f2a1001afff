"""What a command leaves in its folder is read as hostile input: nothing but a clear failure comes of it."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from paddock.ingest import outputs
from paddock.ingest.outputs import RECORD, InvalidOutput, opened, read_lines, read_session


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def records(folder: int, path: Path, content: bytes) -> list[Any]:
    (path / "records.jsonl").write_bytes(content)
    file = opened(folder, "records.jsonl")
    assert file is not None
    with file:
        return list(read_lines(file, "records.jsonl", RECORD))  # type: ignore[arg-type]


GOOD = b'{"id": 1, "data": {}}\n'


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param(b'{"id": 1, "data": {}}', "torn", id="torn"),
        pytest.param(b'{"data": {}}\n', "id", id="no id"),
        pytest.param(b'{"id": null, "data": {}}\n', "id", id="null id"),
        pytest.param(b'{"id": true, "data": {}}\n', "id", id="a boolean id"),
        pytest.param(b'{"id": "", "data": {}}\n', "empty", id="empty id"),
        pytest.param(b'{"id": 1}\n', "data", id="no data"),
        pytest.param(b'{"id": 1, "data": NaN}\n', "JSON", id="NaN"),
        pytest.param(b'{"id": 1, "data": {"a": "\xff"}}\n', "UTF-8", id="not UTF-8"),
        pytest.param(b'{"id": 1, "data": {"a": "\\ud800"}}\n', "JSON", id="a lone surrogate"),
        pytest.param(b'{"id": 1, "data": {}, "more": 1}\n', "more", id="a field that is none"),
        pytest.param(b"\n", "JSON", id="an empty line"),
        pytest.param(b'{"id": 1, "data": ' + b"[" * 10_000 + b"]" * 10_000 + b"}\n", "JSON", id="10,000 levels"),
        pytest.param(b'{"id": 1, "data": "' + b"x" * (2 << 20) + b'"}\n', "longer", id="2 MiB"),
    ],
)
def test_a_bad_line_is_named_by_its_number(folder: int, tmp_path: Path, line: bytes, words: str) -> None:
    with pytest.raises(InvalidOutput, match=words) as refused:
        records(folder, tmp_path, GOOD + line)
    assert "Line 2 of out/records.jsonl" in refused.value.message


def test_a_message_never_holds_what_a_record_says(folder: int, tmp_path: Path) -> None:
    with pytest.raises(InvalidOutput) as refused:
        records(folder, tmp_path, b'{"id": ["a secret"], "data": "a secret"}\n')
    assert "secret" not in refused.value.message


def test_data_is_kept_to_the_byte(folder: int, tmp_path: Path) -> None:
    data = b'{"n": 1180591620717411303424, "x": 1.10, "s": "\\u00e9\\u0000"}'
    [record] = records(folder, tmp_path, b'{"id": "a", "data": ' + data + b"}\n")
    assert bytes(record.data) == data


def test_a_link_is_not_followed(folder: int, tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").symlink_to("/etc/passwd")
    with pytest.raises(InvalidOutput):
        opened(folder, "records.jsonl")


def test_a_second_name_of_a_file_is_refused(folder: int, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(GOOD)
    (tmp_path / "records.jsonl").hardlink_to(tmp_path / "other")
    with pytest.raises(InvalidOutput):
        opened(folder, "records.jsonl")


def test_a_pipe_is_not_waited_for(folder: int, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "records.jsonl")
    with pytest.raises(InvalidOutput):
        opened(folder, "records.jsonl")


def test_a_socket_and_a_folder_are_no_files(folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("records.jsonl")
        with pytest.raises(InvalidOutput):
            opened(folder, "records.jsonl")
    (tmp_path / "session.json").mkdir()
    with pytest.raises(InvalidOutput):
        read_session(folder, 100)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(folder: int, tmp_path: Path) -> None:
    with (tmp_path / "records.jsonl").open("wb") as file:
        file.truncate(outputs.MAX_FILE + 1)
    with pytest.raises(InvalidOutput, match="at most"):
        opened(folder, "records.jsonl")


@pytest.mark.parametrize("content", [b"", b"[]", b'{"session": 1}', b'{"session": NaN, "has_more": true}', b"\xff"])
def test_a_session_file_that_does_not_fit_is_refused(folder: int, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "session.json").write_bytes(content)
    with pytest.raises(InvalidOutput):
        read_session(folder, 100)


def test_a_session_beyond_its_bound_is_refused_and_one_within_is_kept_to_the_letter(
    folder: int, tmp_path: Path
) -> None:
    (tmp_path / "session.json").write_bytes(b'{"session": "' + b"x" * 98 + b'", "has_more": false}')
    assert read_session(folder, 100) == ('"' + "x" * 98 + '"', False)
    with pytest.raises(InvalidOutput, match="100"):
        read_session(folder, 99)


@pytest.mark.parametrize("session", [b'{"a": 1e999}', b"[" * 400 + b"]" * 400])
def test_a_session_that_could_not_be_shown_is_refused(folder: int, tmp_path: Path, session: bytes) -> None:
    (tmp_path / "session.json").write_bytes(b'{"session": ' + session + b', "has_more": false}')
    with pytest.raises(InvalidOutput):
        read_session(folder, 1_000)


def test_what_cannot_be_shown_as_json_is_shown_as_text() -> None:
    assert outputs.readable_json(b'{"a": [1, 2.5]}') == {"a": [1, 2.5]}
    assert outputs.readable_json(b'{"a": 1e999}') == '{"a": 1e999}'
    deep = b"[" * 400 + b"]" * 400
    assert outputs.readable_json(deep) == deep.decode()
