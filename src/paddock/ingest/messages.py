"""What a tap says on its standard output, one message a line: Singer's and Airbyte's shapes, read by one reader.

RECORD is data and STATE a place to go on from; SCHEMA tells the keys; LOG and TRACE are for people. BATCH names files that
nobody here can read, and is refused. What else there may be is passed over. The stream is as hostile as any output.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import orjson

from paddock.ingest.model import MAX_SESSION
from paddock.ingest.outputs import MAX_ID, MAX_LINE, InvalidOutput, Record, check_shown

Protocol = Literal["singer", "airbyte"]
# Where in a record a value of its key stands.
Key = Sequence[Sequence[str]]


class Message(msgspec.Struct, gc=False):
    """Both shapes at once: what the other protocol has is absent. Everything else in a message is passed over."""

    type: str
    stream: str | None = None
    record: msgspec.Raw = msgspec.Raw(b"")
    key_properties: list[str] | None = None
    value: msgspec.Raw = msgspec.Raw(b"")
    state: msgspec.Raw = msgspec.Raw(b"")
    log: "Log | None" = None
    trace: "Trace | None" = None


class Log(msgspec.Struct):
    message: str = ""


class TraceError(msgspec.Struct):
    message: str = ""
    failure_type: str = "system_error"


class Estimate(msgspec.Struct):
    row_estimate: int | None = None


class Trace(msgspec.Struct):
    type: str = ""
    error: TraceError | None = None
    estimate: Estimate | None = None


class AirbyteRecord(msgspec.Struct, gc=False):
    stream: str
    data: msgspec.Raw
    namespace: str | None = None


class Descriptor(msgspec.Struct):
    name: str
    namespace: str | None = None


class StreamState(msgspec.Struct):
    stream_descriptor: Descriptor


class AirbyteState(msgspec.Struct):
    type: str = "LEGACY"
    stream: msgspec.Raw = msgspec.Raw(b"")
    global_: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="global")
    data: msgspec.Raw = msgspec.Raw(b"")


MESSAGE = msgspec.json.Decoder(Message)
AIRBYTE_RECORD = msgspec.json.Decoder(AirbyteRecord)
AIRBYTE_STATE = msgspec.json.Decoder(AirbyteState)
STREAM_STATE = msgspec.json.Decoder(StreamState)
VALUES = msgspec.json.Decoder()
BARE = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class State:
    """The session after what came before."""

    session: str


@dataclass(frozen=True, slots=True)
class Said:
    """Something for the log, or how much there will be."""

    text: str = ""
    total: int | None = None


@dataclass
class Reader:
    """Turns lines into records and states. It remembers keys and, for Airbyte, the newest state of each stream."""

    protocol: Protocol
    keys: dict[str, Key] = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)
    # Airbyte's own words for what went wrong.
    error: TraceError | None = None
    _number: int = 0
    # By stream: of which key, and what reads it.
    _decoders: "dict[str, tuple[Key, msgspec.json.Decoder[Any] | None]]" = field(default_factory=dict)

    def read(self, line: bytes) -> Record | State | Said | None:
        self._number += 1
        if len(line) > MAX_LINE:
            raise self._invalid(f"is longer than {MAX_LINE:,} bytes")
        try:
            line.decode("utf-8")
            message = MESSAGE.decode(line)
        except UnicodeDecodeError:
            raise self._invalid("is not UTF-8") from None
        except (msgspec.MsgspecError, RecursionError):
            raise self._invalid("is no message") from None
        try:
            return self._understood(message)
        except (msgspec.MsgspecError, orjson.JSONDecodeError, RecursionError):
            raise self._invalid(f"is no valid {message.type[:20]}") from None

    def _understood(self, message: Message) -> Record | State | Said | None:
        if message.type == "RECORD":
            return self._record(message)
        if message.type == "STATE":
            return State(self._session(message))
        if message.type == "SCHEMA" and message.stream is not None:
            self.keys[message.stream] = [[name] for name in message.key_properties or []]
        elif message.type == "BATCH":
            raise self._invalid("is a BATCH, which names files instead of records")
        elif message.type == "LOG" and message.log is not None:
            return Said(message.log.message)
        elif message.type == "TRACE" and message.trace is not None:
            return self._trace(message.trace)
        return None

    def _record(self, message: Message) -> Record:
        if self.protocol == "airbyte":
            found = AIRBYTE_RECORD.decode(message.record)
            stream = found.stream if found.namespace is None else f"{found.namespace}.{found.stream}"
            data = found.data
        else:
            stream, data = message.stream or "", message.record
        if not bytes(data).startswith(b"{") or not 1 <= len(stream) <= MAX_ID:
            raise self._invalid("is a RECORD without a stream or a record")
        return Record(self._id(stream, data), msgspec.Raw(bytes(data)), stream)

    def _id(self, stream: str, data: msgspec.Raw) -> str:
        """Of the values of its key; without a key the record itself is what tells it from others."""
        key = self.keys.get(stream)
        if not key:
            return hashlib.sha256(bytes(data)).hexdigest()
        values = self._values(stream, key, data)
        if None in values:
            raise self._invalid("is a RECORD without a value of its key")
        only = values[0] if len(values) == 1 else values
        id = only if isinstance(only, str) else BARE.encode(only).decode()
        if not 1 <= len(id) <= MAX_ID:
            raise self._invalid("is a RECORD whose key is empty or too long")
        return id

    def _values(self, stream: str, key: Key, data: msgspec.Raw) -> list[Any]:
        """Where the key is of the record's own fields, nothing else of it is read."""
        known = self._decoders.get(stream)
        if known is None or known[0] is not key:
            known = self._decoders[stream] = (key, _decoder_of(key))
        if known[1] is not None:
            return [*msgspec.structs.astuple(known[1].decode(data))]
        record = VALUES.decode(data)
        return [_at(record, path) for path in key]

    def _session(self, message: Message) -> str:
        raw = bytes(message.value) if self.protocol == "singer" else self._airbyte_session(bytes(message.state))
        if not raw:
            raise self._invalid("is a STATE without a value")
        if len(raw) > MAX_SESSION:
            raise self._invalid(f"is a STATE of {len(raw):,} bytes; at most {MAX_SESSION:,} are kept")
        check_shown(raw)
        return raw.decode()

    def _airbyte_session(self, raw: bytes) -> bytes:
        """The newest state of each stream, as a list; what it counted besides is no position and is left out."""
        state = AIRBYTE_STATE.decode(raw)
        if state.type == "LEGACY":
            return bytes(state.data)
        place = bytes(state.stream if state.type == "STREAM" else state.global_)
        if state.type not in ("STREAM", "GLOBAL") or not place.startswith(b"{"):
            raise self._invalid("is a STATE without a value")
        named = place_of(place) if state.type == "STREAM" else ""
        self.states[named] = b'{"type":"%s","%s":%s}' % (state.type.encode(), state.type.lower().encode(), place)
        return b"[" + b",".join(self.states.values()) + b"]"

    def _trace(self, trace: Trace) -> Said | None:
        if trace.type == "ERROR" and trace.error is not None:
            self.error = trace.error
            return Said(trace.error.message)
        if trace.type == "ESTIMATE" and trace.estimate is not None:
            return Said(total=trace.estimate.row_estimate)
        return None

    def _invalid(self, what: str) -> InvalidOutput:
        return InvalidOutput(f"Line {self._number:,} of what the tap said {what}.")


def place_of(stream: bytes) -> str:
    descriptor = STREAM_STATE.decode(stream).stream_descriptor
    return f"{descriptor.namespace or ''}.{descriptor.name}"


def _decoder_of(key: Key) -> "msgspec.json.Decoder[Any] | None":
    """None: a part of the key stands deeper in the record."""
    if any(len(path) != 1 for path in key):
        return None
    names = [path[0] for path in key]
    fields: list[Any] = [(f"k{n}", Any, None) for n in range(len(names))]
    own = msgspec.defstruct("Key", fields, rename={f"k{n}": name for n, name in enumerate(names)}, gc=False)
    return msgspec.json.Decoder(own)


def _at(record: Any, path: Sequence[str]) -> Any:
    for name in path:
        record = record.get(name) if isinstance(record, dict) else None
    return record


def states_of(session: str | None) -> dict[str, bytes]:
    """The states of an earlier session of Airbyte: streams that say nothing this time keep theirs. Raises InvalidOutput for a
    list of something else."""
    if session is None or not session.startswith("["):
        return {}
    found: dict[str, bytes] = {}
    try:
        for raw in msgspec.json.decode(session, type=list[msgspec.Raw]):
            state = AIRBYTE_STATE.decode(raw)
            found[place_of(bytes(state.stream)) if state.type == "STREAM" else ""] = bytes(raw)
    except (msgspec.MsgspecError, RecursionError):
        raise InvalidOutput(
            "The session is a list, and not one of states of Airbyte.",
            hint="Start a run with --from start, or with a session that an earlier run gave.",
        ) from None
    return found


def keys_of(catalog: Mapping[str, Any]) -> dict[str, Key]:
    """Primary keys by stream, as a configured catalog of Airbyte has them."""
    found: dict[str, Key] = {}
    for each in catalog.get("streams", []):
        stream = each.get("stream", {})
        namespace = stream.get("namespace")
        name = stream.get("name", "") if namespace is None else f"{namespace}.{stream.get('name', '')}"
        found[name] = each.get("primary_key") or stream.get("source_defined_primary_key") or []
    return found
