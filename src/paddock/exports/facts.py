"""What a manifest says beside its list of files."""

import pyarrow as pa

from paddock.exports.model import ExportPayload
from paddock.jobs.model import JsonObject


def facts_of(
    payload: ExportPayload, schema: pa.Schema, query_id: str | None, started_at: str, *, truncated: bool = False
) -> JsonObject:
    return {
        "format": payload.format,
        "columns": [{"name": field.name, "type": str(field.type)} for field in schema],
        "engine": payload.engine,
        "query_id": query_id,
        "started_at": started_at,
        "truncated": truncated,
    }
