"""The checks over HTTP."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from paddock.doctor.examining import server_checks
from paddock.doctor.findings import ok

if TYPE_CHECKING:
    from fastapi import APIRouter


def router() -> "APIRouter":
    """`GET /api/ops/doctor`, to be given to `create_app(routers=...)`."""
    from starlette.responses import Response

    import paddock
    from paddock.api.access import OPERATORS
    from paddock.api.auth import Asking
    from paddock.api.documenting import documented
    from paddock.api.guard import guarded_router
    from paddock.api.pagination import answer
    from paddock.api.plane import ThePlane

    example = {
        "version": "0.1.0",
        "now": "2026-11-15T09:30:00Z",
        "findings": [asdict(ok("database", "PostgreSQL 18.1."))],
    }
    made = guarded_router("ops", OPERATORS)

    async def examine(plane: ThePlane, caller: Asking) -> Response:
        findings = await server_checks(plane.core, plane.config)
        return answer(
            {
                "version": paddock.__version__,
                "now": datetime.now(UTC),
                "findings": [asdict(finding) for finding in findings],
            }
        )

    made.add_api_route(
        "/api/ops/doctor", examine, methods=["GET"], summary="Check everything", responses=documented(example)
    )
    return made
