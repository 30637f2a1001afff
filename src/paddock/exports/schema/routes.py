"""Finding tables and columns by their names, in all engines at once."""

import dataclasses
from typing import Annotated, Any, Literal

from fastapi import Query
from starlette.responses import Response

from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented
from paddock.api.guard import guarded_router
from paddock.api.pagination import answer
from paddock.api.plane import ThePlane
from paddock.exports.schema import service

router = guarded_router("schema", PEOPLE)

MATCH: dict[str, Any] = {
    "engine": "warehouse",
    "catalog": "hive",
    "schema": "sales",
    "table": "orders",
    "columns": [{"name": "order_id", "native": "bigint"}],
}
STATS: dict[str, Any] = {
    "engine": "warehouse",
    "as_of": "2026-11-18T09:30:00Z",
    "stale": False,
    "status": "success",
    "note": None,
    "left_out": None,
    "catalogs": [
        {
            "catalog": "hive",
            "schemas": 12,
            "tables": 840,
            "columns": 15200,
            "as_of": "2026-11-18T09:30:00Z",
            "stale": False,
            "errors": [],
        }
    ],
}


@router.get(
    "/api/schema/search", summary="Tables or columns by a part of their name", responses=documented([MATCH], Any)
)
async def search(
    plane: ThePlane,
    caller: Asking,
    q: Annotated[str, Query(max_length=1000, description="Two characters at least.")] = "",
    engine: Annotated[str | None, Query(max_length=100)] = None,
    catalog: Annotated[str | None, Query(max_length=200)] = None,
    within: Annotated[Literal["tables", "columns"], Query(alias="in")] = "tables",
) -> Response:
    found = await service.search(plane, caller, q, engine=engine, catalog=catalog, within=within)
    return answer([dataclasses.asdict(match) for match in found])


@router.get("/api/schema/stats", summary="How fresh the cache is", responses=documented([STATS], Any))
async def stats(plane: ThePlane, caller: Asking) -> Response:
    return answer(await service.stats(plane, caller))
