"""What commands wrote, read as the hostile input that it is.

Only the named files count. A file is opened without following a link and without waiting for anybody, must be regular,
must have one name only, and is bounded, as each of its lines is. A record's `data` is kept as it was written, to the byte:
parsed and written again, large numbers would change.
"""

import os
import re
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec
import orjson

from paddock.jobs.errors import PermanentRunnerError

MAX_LINE = 1 << 20
MAX_FILE = 256 << 20
MAX_ID = 4_096
# A lone half of a surrogate pair is no text; only a line that may have one is parsed to see.
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class InvalidOutput(PermanentRunnerError):
    """The contract is broken. Only whoever wrote the command can mend it."""

    code = "invalid_output"


# None of these can be part of a cycle: the collector need not look at them, of which there are millions.
class Record(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A line of `records.jsonl`."""

    id: str | int
    data: msgspec.Raw
    stream: str = ""


class Feature(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    id: str | int
    features: msgspec.Raw
    stream: str = ""


class Rejection(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    id: str | int
    reason: str
    stream: str = ""


class HookError(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    id: str | int
    error: str
    stream: str = ""


class SessionFile(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    session: msgspec.Raw
    has_more: bool


RECORD = msgspec.json.Decoder(Record)
FEATURE = msgspec.json.Decoder(Feature)
REJECTION = msgspec.json.Decoder(Rejection)
HOOK_ERROR = msgspec.json.Decoder(HookError)
SESSION = msgspec.json.Decoder(SessionFile)

Line = Record | Feature | Rejection | HookError


def key_of(line: Line) -> tuple[str, str]:
    """What tells a record from others of its batch."""
    id = line.id
    return line.stream, id if isinstance(id, str) else str(id)


def opened(folder: int, name: str, most: int = MAX_FILE) -> BinaryIO | None:
    """None: there is no such file."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise InvalidOutput(f"out/{name} cannot be read: {problem.strerror}.", hint="Write a plain file.") from None
    try:
        _check(os.fstat(fd), name, most)
    except InvalidOutput:
        os.close(fd)
        raise
    return os.fdopen(fd, "rb")


def _check(found: os.stat_result, name: str, most: int) -> None:
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise InvalidOutput(f"out/{name} is not a plain file of its own.", hint="Write a plain file, no link or pipe.")
    if found.st_size > most:
        raise InvalidOutput(
            f"out/{name} has {found.st_size:,} bytes; at most {most:,} are taken.", hint="Write smaller batches."
        )


def read_lines(file: BinaryIO, name: str, decoder: "msgspec.json.Decoder[Line]") -> Iterator[Line]:
    """Each line of the file, checked. It is the caller's to close."""
    number = 0
    while raw := file.readline(MAX_LINE + 2):
        number += 1
        where = f"Line {number:,} of out/{name}"
        if len(raw) > MAX_LINE + 1:
            raise InvalidOutput(f"{where} is longer than {MAX_LINE:,} bytes.")
        if not raw.endswith(b"\n"):
            raise InvalidOutput(
                f"{where} is the last and has no end: it is torn.", hint="End every line with a newline."
            )
        yield _decoded(raw, where, decoder)


def _decoded(raw: bytes, where: str, decoder: "msgspec.json.Decoder[Line]") -> Line:
    try:
        raw.decode("utf-8")
        line = decoder.decode(raw)
        if b"\\u" in raw and SURROGATE.search(raw):
            orjson.loads(raw)
    except UnicodeDecodeError:
        raise InvalidOutput(f"{where} is not UTF-8.") from None
    except (msgspec.MsgspecError, orjson.JSONDecodeError, RecursionError, MemoryError) as problem:
        raise InvalidOutput(f"{where} does not fit: {_short(problem)}.") from None
    if not 1 <= len(str(line.id)) <= MAX_ID or len(line.stream) > MAX_ID:
        raise InvalidOutput(f"{where} has an id or stream that is empty or longer than {MAX_ID:,} characters.")
    return line


def read_session(folder: int, most: int) -> tuple[str, bool]:
    """The session as it was written, and whether there is more."""
    file = opened(folder, "session.json")
    if file is None:
        raise InvalidOutput(
            "The ingester wrote no out/session.json.", hint='Write {"session": ..., "has_more": false}.'
        )
    with file:
        raw = file.read(most + 4_096)
    try:
        raw.decode("utf-8")
        found = SESSION.decode(raw)
        session = bytes(found.session)
        check_shown(session)
    except (UnicodeDecodeError, msgspec.MsgspecError, orjson.JSONDecodeError, RecursionError) as problem:
        raise InvalidOutput(f"out/session.json does not fit: {_short(problem)}.") from None
    if len(session) > most:
        raise InvalidOutput(f"The session has {len(session):,} bytes; at most {most:,} are kept.")
    return session.decode(), found.has_more


def check_shown(text: bytes) -> None:
    """Raises JSONDecodeError for what our own pages could not show: some numbers and depths that other readers let pass."""
    try:
        orjson.dumps(orjson.loads(text))
    except orjson.JSONEncodeError as problem:
        raise orjson.JSONDecodeError(str(problem), "", 0) from None


def readable_json(text: bytes) -> Any:
    """JSON for people. What cannot be read by all readers is shown as the text that it is."""
    try:
        check_shown(text)
    except orjson.JSONDecodeError:
        return text.decode("utf-8", "replace")
    return orjson.loads(text)


def _short(problem: BaseException) -> str:
    """Never the value: it may be anybody's data."""
    if isinstance(problem, msgspec.ValidationError):
        return str(problem).rstrip(".")[:200]
    return "it is no valid JSON"
