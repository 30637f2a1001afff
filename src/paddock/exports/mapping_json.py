"""A mapping as the API and the dashboard's forms show it."""

from dataclasses import asdict
from typing import Any

from paddock.api.durations import iso
from paddock.exports.mappings import BriefMapping, Mapping


def brief_json(mapping: BriefMapping) -> dict[str, Any]:
    return _with_links({**asdict(mapping), "version": mapping.version}, mapping)


def mapping_json(mapping: Mapping) -> dict[str, Any]:
    shown = {name: getattr(mapping, name) for name in Mapping.__slots__ if name != "definition"}
    return {**_with_links(shown, mapping), **mapping.definition.dumped()}


def _with_links(fields: dict[str, Any], mapping: BriefMapping | Mapping) -> dict[str, Any]:
    own = f"/api/mappings/{mapping.id}"
    return {
        **fields,
        "ttl": iso(mapping.ttl),
        "expires_at": None if mapping.ttl is None else mapping.created_at + mapping.ttl,
        "links": {"self": own, "versions": f"{own}/versions", "snapshots": f"/api/snapshots?mapping={mapping.id}"},
    }
