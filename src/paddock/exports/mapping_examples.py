"""What `/api/mappings` answers, as the documentation shows it."""

from typing import Any

MAPPING_ID = "019a8b1e-4c30-7000-9b6e-5f0d3c0a51e7"
DEFINITION_EXAMPLE: dict[str, Any] = {
    "nodes": [
        {
            "label": "Airport",
            "sql": "SELECT code, name FROM airports",
            "primary_key": {"name": "code", "type": "STRING"},
            "properties": [{"name": "name", "type": "STRING"}],
        }
    ],
    "edges": [
        {
            "type": "ROUTE",
            "from_node": "Airport",
            "to_node": "Airport",
            "sql": "SELECT origin, target, miles FROM routes",
            "from_key": "origin",
            "to_key": "target",
            "properties": [{"name": "miles", "type": "INT32"}],
        }
    ],
}
BRIEF_EXAMPLE: dict[str, Any] = {
    "id": MAPPING_ID,
    "owner": "ada",
    "name": "flights",
    "description": "",
    "version": 2,
    "ttl": None,
    "expires_at": None,
    "created_at": "2026-11-16T09:30:00Z",
    "updated_at": "2026-11-16T10:00:00Z",
    "links": {"self": f"/api/mappings/{MAPPING_ID}", "versions": f"/api/mappings/{MAPPING_ID}/versions"},
}
MAPPING_EXAMPLE: dict[str, Any] = {
    **BRIEF_EXAMPLE,
    "latest": 2,
    "change_description": "Miles are whole numbers.",
    "created_by": "ada",
    "version_created_at": "2026-11-16T10:00:00Z",
    **DEFINITION_EXAMPLE,
}
VERSION_EXAMPLE: dict[str, Any] = {
    "version": 2,
    "change_description": "Miles are whole numbers.",
    "created_by": "ada",
    "created_at": "2026-11-16T10:00:00Z",
    "nodes": 1,
    "edges": 1,
}
_NOTHING: dict[str, Any] = {"added": [], "removed": [], "changed": []}
DIFF_EXAMPLE: dict[str, Any] = {
    "from": 1,
    "to": 2,
    "nodes": _NOTHING,
    "edges": {
        **_NOTHING,
        "changed": [
            {
                "type": "ROUTE",
                "properties": {
                    **_NOTHING,
                    "changed": [{"name": "miles", "from": "DOUBLE", "to": "INT32"}],
                    "reordered": None,
                },
            }
        ],
    },
}

VALID_EXAMPLE: dict[str, Any] = {
    "valid": False,
    "entities": [
        {
            "section": "edges",
            "name": "ROUTE",
            "valid": False,
            "columns": [{"name": "origin", "type": "STRING", "arrow": "string", "native": "VARCHAR"}],
            "mismatches": [
                {
                    "field": "edges.0.properties.0",
                    "position": 2,
                    "column": "miles",
                    "expected": "INT32",
                    "found": "DOUBLE",
                    "hint": "Cast it in the query to what INT32 holds, or declare it as DOUBLE.",
                }
            ],
            "warnings": [
                {
                    "field": "edges.0.to_key",
                    "position": 1,
                    "column": "target",
                    "found": "dest",
                    "message": "The query calls it 'dest': position counts, so its values become 'target'.",
                }
            ],
            "error": None,
            "job_id": MAPPING_ID,
        }
    ],
}
