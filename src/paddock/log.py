"""Log lines: JSON for machines, colours on a terminal, and no secret in either (I9).

Everything ends in one chain, whether it was logged with structlog or by a library with the standard `logging`:
context (request_id, job, attempt, worker), RFC 3339 UTC time, traceback as text, scrubbed, written to stderr.

The scrubber is a second line of defence. It knows the shapes our own secrets and our engines' have, and prefers to
hide too much; whoever holds a secret still must not log it.

structlog is imported by `configure` and not with this module: it costs 300 ms, and the command line needs `scrub`.
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from structlog.typing import Processor

LIMIT = 64 * 1024
# A secret that the cut goes through must still be seen whole to be recognised, so this much more is looked at.
OVERHANG = 4096
MASK = "***"

# Loggers that say something for every request: off until somebody asks for debug.
PER_REQUEST = ("uvicorn.access", "aiohttp.access", "httpx", "httpx2", "httpcore", "httpcore2")
# uvicorn installs handlers of its own unless it is run with `log_config=None`.
WITH_HANDLERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")


@dataclass(frozen=True)
class _Rule:
    needles: tuple[str, ...]  # lower case; one of them occurs in every text the pattern could match
    pattern: re.Pattern[str]
    replacement: str


# Between a name and its value: `=`, `: `, `": "`, `\": \"`, `%3D`. Every repeat is bounded or cannot overlap the next.
_BYTES = r"(?:b(?=[\"']))?"  # the b of b'...'
_GAP = r"\\{0,4}[\"']?\s{0,8}(?:=>|[:=]|%(?:25)?3d)\s{0,8}\\{0,4}" + _BYTES
_VALUE = r"(?:\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?|[^\s\"']+)"
_PARAMETER = r"(?:\"[^\"]*\"?|'[^']*'?|[^\s\"'&<>]+)"


def _rule(needles: str, pattern: str, replacement: str) -> _Rule:
    return _Rule(tuple(needles.split()), re.compile(pattern, re.IGNORECASE | re.DOTALL), replacement)


_PASSWORDS = (
    r"(?:password|passwd|passphrase|(?<![a-z0-9])pwd|secret(?:[_-]?access)?(?:[_-]?key)?|private[_-]?key"
    r"|api[_-]?key|account[_-]?key|(?:access|refresh|auth|bearer|session|security|id|csrf|sas)[_-]?token)"
)
_CAPABILITY_URLS = r"(?:(?:next|ack|partial_?cancel)_?(?:uri|url)|upload_?id)"
_SIGNED_PARAMETERS = (
    r"(?:x-(?:amz|goog)-(?:signature|credential|security-token)|awsaccesskeyid|(?<![a-z0-9])(?:sig|signature|skoid))"
)

# In this order: a value is masked whole by its name before a rule for its shape could mask a part of it.
RULES: tuple[_Rule, ...] = (
    _rule(
        "-----begin",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)",
        MASK,
    ),
    _rule(
        "authorization",
        r"(authorization)(\\{0,4}[\"']?\s{0,8}[:=,]\s{0,8}\\{0,4}"
        + _BYTES
        + r"[\"']?)(?:[a-z0-9-]{1,32}\s{1,8})?[^\s\"']+",
        rf"\1\2{MASK}",
    ),
    _rule(
        "cookie",
        r"(cookie)(\\{0,4}[\"']?\s{0,8}[:,]\s{0,8}\\{0,4}" + _BYTES + r"[\"']?)[^\r\n\"']+",
        rf"\1\2{MASK}",
    ),
    _rule(
        "bearer",
        r"\b(bearer)(?:\s|%20|\+){1,8}(?!(?:tokens?|auth\w{0,20}|scheme|header|realm)\b)[\w.~+/=-]+",
        rf"\1 {MASK}",
    ),
    # Before `://`: a URL in a signed link or a nextUri is worth nothing once its secret part is gone.
    _rule("uri url upload", rf"({_CAPABILITY_URLS})({_GAP}){_VALUE}", rf"\1\2{MASK}"),
    _rule("pass pwd secret key token", rf"({_PASSWORDS})({_GAP}){_VALUE}", rf"\1\2{MASK}"),
    # A bare `token: x` is how parsers complain, so only `token=x` and a quoted name count.
    _rule("token", rf"(token)(=|%3d|\\{{0,4}}[\"']\s{{0,8}}:\s{{0,8}}\\{{0,4}}){_VALUE}", rf"\1\2{MASK}"),
    _rule("sig credential token awsaccesskeyid skoid", rf"({_SIGNED_PARAMETERS})({_GAP}){_PARAMETER}", rf"\1\2{MASK}"),
    _rule("/v1/statement/", r"(/v1/statement/(?:queued|executing)/)[^\s\"'<>]+", rf"\1{MASK}"),
    _rule("/v1/spooled/", r"(/v1/spooled/)[^\s\"'<>]+", rf"\1{MASK}"),
    # Up to the last @: a password may hold an unescaped @ or slash. `host:8080/` is a port.
    _rule("://", r"(://)[^\s/@:\"]*:(?!\d{1,5}[/?#\s])[^\s\"]{0,200}@", rf"\1{MASK}@"),
    _rule("://", r"(://)[^\s/\"]*@", rf"\1{MASK}@"),
    _rule("paddock_session", rf"(paddock_session)({_GAP}){_VALUE}", rf"\1\2{MASK}"),
    _rule("#code=", r"(#code=)[^\s\"'<>&]+", rf"\1{MASK}"),
    _rule("whsec_", r"whsec_[\w+/=-]*", f"whsec_{MASK}"),
    _rule("pdk_", r"pdk_[\w.~+/=-]*", f"pdk_{MASK}"),
    _rule("eyj", r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]+\.[\w-]*", MASK),
    _rule("akia asia", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", MASK),
)

# Names whose whole value is masked. `secret_name`, `upload_id_count` and the like are about a secret, not the secret.
SECRET_NAME = re.compile(
    rf"(?:{_PASSWORDS}|{_CAPABILITY_URLS}|{_SIGNED_PARAMETERS}|authorization|cookie|(?:^|[_-])token$)"
    r"(?![_-]?(?:name|id|count|file|path|ref|age|seconds|bytes|kind|type)s?$)",
    re.IGNORECASE,
)


def scrub(text: str, limit: int = LIMIT) -> str:
    """The text without secrets, at most `limit` characters of it. Never raises, and takes linear time."""
    if len(text) < 20 and text.isalnum():
        return text[:limit]  # most values: every shape has a sign in it, or twenty characters
    cut = len(text) > limit + OVERHANG
    if cut:
        text = text[: limit + OVERHANG]
    lower = text.lower()
    for rule in RULES:
        for needle in rule.needles:  # plain loops: `any` costs as much as all the rest of a short text
            if needle in lower:
                text = rule.pattern.sub(rule.replacement, text)
                break
    if cut:
        # Masks make the text shorter, and a half-seen secret at its end must not move up into what is kept.
        text = text[:-OVERHANG]
    return text[:limit]


DEPTH = 6
ITEMS = 200
_PLAIN = (int, float, bool, type(None), datetime, date, timedelta, UUID, Decimal)


def scrub_value(value: object, depth: int = DEPTH) -> object:
    """Any value as plain data without secrets, bounded in depth and width."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, timedelta | Decimal | UUID):
        return str(value)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return scrub(bytes(value[: LIMIT + OVERHANG + 1]).decode("utf-8", "backslashreplace"))
    if depth > 0 and isinstance(value, Mapping):
        pairs = islice(value.items(), ITEMS)
        return {scrub(str(key), limit=200): scrub_item(str(key), inner, depth - 1) for key, inner in pairs}
    if depth > 0 and isinstance(value, list | tuple | set | frozenset):
        return [scrub_value(inner, depth - 1) for inner in islice(value, ITEMS)]
    try:
        return scrub(repr(value))
    except Exception:  # somebody's __repr__: the line is worth more than the value
        return f"<{type(value).__name__}>"


@lru_cache(1024)
def _is_secret(name: str) -> bool:
    return SECRET_NAME.search(name) is not None


def scrub_item(name: str, value: object, depth: int = DEPTH) -> object:
    if isinstance(value, _PLAIN) and not isinstance(value, UUID):
        return scrub_value(value, depth)  # a number under a secret's name is a count: `token_count=3`
    return MASK if _is_secret(name[:200]) else scrub_value(value, depth)


def masked(value: Any) -> Any:
    """JSON as people may see it: payloads, results and reports name secrets and should hold none; one that does must
    not come back. It is whole, unlike what is logged: its size and depth are bounded where it is taken."""
    if isinstance(value, str):
        return scrub(value, limit=len(value))
    if isinstance(value, Mapping):
        return {
            key: MASK if isinstance(inner, str) and SECRET_NAME.search(key) else masked(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [masked(inner) for inner in value]
    return value


def scrub_event(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in event.items():
        if not name.startswith("_"):  # structlog's own: `_record`, `_from_structlog`
            event[name] = scrub_item(name, value)
    return event


def write(line: str) -> None:
    """One write per line. A log that nobody can receive is not a reason to stop working."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


class _Writer:
    """What structlog calls with the rendered line."""

    def msg(self, line: str) -> None:
        write(line)

    debug = info = warning = warn = error = critical = fatal = exception = log = failure = msg


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:  # a library's bad format arguments must not surface in its caller
            line = f"log record from {record.name} could not be formatted: {type(error).__name__}"
        write(line)


def configure(level: str = "info", fmt: str = "auto") -> None:
    """Sets up structlog and the standard `logging`. `auto` is console on a terminal, else JSON. May be repeated."""
    import structlog

    number = logging.getLevelNamesMapping()[level.upper()]
    console = fmt == "console" or (fmt == "auto" and sys.stderr.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        scrub_event,
    ]
    render = _console() if console else structlog.processors.JSONRenderer(serializer=_json())
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: _Writer(),
        # Not cached: a logger made at import would keep the chain of before `configure`, without the scrubber.
        cache_logger_on_first_use=False,
    )
    handler = _Handler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    _take_over(handler, number)


def _take_over(handler: logging.Handler, level: int) -> None:
    root = logging.getLogger()
    for old in [old for old in root.handlers if type(old) in (_Handler, logging.StreamHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in WITH_HANDLERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    for name in PER_REQUEST:
        logging.getLogger(name).setLevel(logging.NOTSET if level <= logging.DEBUG else logging.WARNING)


def _console() -> "Processor":
    import structlog

    # plain_traceback: the pretty one prints local variables, and with them whatever secret a function held.
    return structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=36
    )


def _json() -> Callable[..., str]:
    import orjson

    def dumps(event: Mapping[str, Any], **_: object) -> str:
        try:
            return orjson.dumps(event).decode()
        except TypeError:  # a lone surrogate, or an integer beyond 64 bits
            return json.dumps(event, default=str)

    return dumps
