"""Cursors that 0.1 saved before their keys were words: a dump that it began goes on where it was."""

from typing import Any

from paddock.jobs.model import JsonObject

_KEYS = {"t": "text", "b": "blob", "f": "double"}


def spelled_out(cursor: JsonObject) -> JsonObject:
    """The cursor as it is saved now, whichever way it was saved."""
    if isinstance(cursor["start"], dict):
        return cursor
    part_size, size, digest = cursor["start"]
    start = {"part_size": part_size, "size": size, "digest": digest}
    return {**cursor, "position": _position(cursor["position"]), "start": start}


def _position(at: JsonObject) -> JsonObject:
    if not at:
        return at  # The file is whole.
    position = {"section": at["s"], "place": _place(at["p"]), "counts": at["n"]}
    return position | ({"zip": _zip(at["z"])} if "z" in at else {})


def _zip(state: JsonObject) -> JsonObject:
    closed = [dict(zip(("crc", "packed", "size", "offset"), entry, strict=True)) for entry in state["e"]]
    return {
        "offset": state["o"],
        "closed": closed,
        "open": dict(zip(("crc", "packed", "size"), state["c"], strict=True)),
    }


def _place(place: Any) -> Any:
    """A number, but for the rows of a SQLite table: what is left of them, and how many were written and counted."""
    if not isinstance(place, list):
        return place
    chunk, written, counted = place
    chunk = dict(chunk)
    if "after" in chunk:
        chunk["after"] = _mark(chunk["after"])
    if "big" in chunk:
        chunk["big"] = dict(zip(("column", "offset"), chunk["big"], strict=True))
    return {"chunk": chunk, "written": written, "counted": counted}


def _mark(mark: Any) -> Any:
    """A rowid, or a key and how many of its columns still bind."""
    if not isinstance(mark, list):
        return mark
    key, binding = mark
    return {"key": [_value(each) for each in key], "binding": binding}


def _value(value: Any) -> Any:
    return {_KEYS[value[0]]: value[1]} if isinstance(value, list) else value
