"""Who may do what: one table, role x route.

A route that is not here answers nobody (403); a test walks every route of the app. Owner scoping comes on top: what an
analyst reaches through a route is only their own (`Caller.sees`).
"""

from collections.abc import Mapping
from typing import Literal

Role = Literal["worker", "analyst", "ops", "admin"]
ROLES: tuple[Role, ...] = ("worker", "analyst", "ops", "admin")

# Needs no token: the route itself decides what it shows (/metrics may ask for its scrape token).
OPEN: frozenset[str] = frozenset({"anyone"})
WORKERS: frozenset[str] = frozenset({"worker"})
PEOPLE: frozenset[str] = frozenset({"analyst", "ops", "admin"})
OPERATORS: frozenset[str] = frozenset({"ops", "admin"})
ADMINS: frozenset[str] = frozenset({"admin"})

ACCESS: Mapping[str, frozenset[str]] = {
    "GET /health": OPEN,
    "GET /ready": OPEN,
    "GET /metrics": OPEN,
    "GET /openapi.json": OPEN,
    # the dashboard; its forms bring their CSRF token as a field
    "GET /sign-in": OPEN,
    "POST /sign-in": OPEN,
    "GET /static/{name:path}": OPEN,
    "POST /sign-out": PEOPLE,
    "GET /": PEOPLE,
    "GET /jobs": PEOPLE,
    "GET /jobs.csv": PEOPLE,
    "GET /jobs.json": PEOPLE,
    "POST /jobs/columns": PEOPLE,
    "POST /jobs/selected": PEOPLE,
    "GET /jobs/cancel": PEOPLE,
    "POST /jobs/cancel": PEOPLE,
    "GET /jobs/retry": PEOPLE,
    "POST /jobs/retry": PEOPLE,
    "GET /jobs/{job_id}": PEOPLE,
    "GET /jobs/{job_id}/log": PEOPLE,
    "POST /jobs/{job_id}/cancel": PEOPLE,
    "POST /jobs/{job_id}/retry": PEOPLE,
    "POST /jobs/{job_id}/run-now": PEOPLE,
    "GET /groups": PEOPLE,
    "GET /groups/{group_id}": PEOPLE,
    "POST /groups/{group_id}/retry": PEOPLE,
    "GET /kinds": PEOPLE,
    "GET /kinds/{kind}": PEOPLE,
    "POST /kinds/{kind}/pause": OPERATORS,
    "POST /kinds/{kind}/resume": OPERATORS,
    "GET /workers": OPERATORS,
    "POST /workers/{session}/quiet": OPERATORS,
    "GET /schedules": OPERATORS,
    "POST /schedules": OPERATORS,
    "GET /schedules/-/new": OPERATORS,
    "GET /schedules/-/times": OPERATORS,
    "GET /schedules/{name}": OPERATORS,
    "GET /schedules/{name}/edit": OPERATORS,
    "POST /schedules/{name}/edit": OPERATORS,
    "POST /schedules/{name}/run": OPERATORS,
    "POST /schedules/{name}/switch": OPERATORS,
    "POST /schedules/{name}/delete": OPERATORS,
    "GET /events": PEOPLE,
    "GET /events/{event_id}": PEOPLE,
    "POST /events/{event_id}/redeliver": PEOPLE,
    "GET /webhooks": PEOPLE,
    "GET /webhooks/new": PEOPLE,
    "POST /webhooks": PEOPLE,
    "GET /webhooks/{webhook_id}": PEOPLE,
    "POST /webhooks/{webhook_id}/test": PEOPLE,
    "POST /webhooks/{webhook_id}/delete": PEOPLE,
    "GET /audit": OPERATORS,
    # of an analyst: who they are, and a link to sign in elsewhere
    "GET /settings": PEOPLE,
    "POST /settings/link": PEOPLE,
    "POST /settings/drain": OPERATORS,
    "GET /settings/config": OPERATORS,
    "POST /settings/config": OPERATORS,
    "GET /settings/doctor": OPERATORS,
    "GET /settings/tokens": ADMINS,
    "GET /settings/tokens/new": ADMINS,
    "POST /settings/tokens": ADMINS,
    "POST /settings/tokens/{token_id}/revoke": ADMINS,
    # the workers' API
    "POST /internal/sessions": WORKERS,
    "POST /internal/sessions/{session}/beat": WORKERS,
    "POST /internal/jobs/claim": WORKERS,
    "POST /internal/jobs/save": WORKERS,
    "POST /internal/jobs/finish": WORKERS,
    "POST /internal/jobs/release": WORKERS,
    "POST /internal/jobs/logs": WORKERS,
    # work: an analyst makes, sees and ends their own
    "POST /api/jobs": PEOPLE,
    "POST /api/jobs/batch": PEOPLE,
    "GET /api/jobs": PEOPLE,
    "GET /api/jobs/counts": PEOPLE,
    "POST /api/jobs/cancel": PEOPLE,
    "POST /api/jobs/retry": PEOPLE,
    "GET /api/jobs/{job_id}": PEOPLE,
    "GET /api/jobs/{job_id}/timeline": PEOPLE,
    "GET /api/jobs/{job_id}/logs": PEOPLE,
    "POST /api/jobs/{job_id}/cancel": PEOPLE,
    "POST /api/jobs/{job_id}/retry": PEOPLE,
    "POST /api/jobs/{job_id}/run-now": PEOPLE,
    "GET /api/groups/{group_id}": PEOPLE,
    "GET /api/stream": PEOPLE,
    "GET /api/kinds": PEOPLE,
    # facts: scoped to the owner
    "GET /api/events": PEOPLE,
    "GET /api/events/{event_id}": PEOPLE,
    "GET /api/events/{event_id}/deliveries": PEOPLE,
    "POST /api/events/{event_id}/redeliver": PEOPLE,
    "GET /api/webhooks": PEOPLE,
    "POST /api/webhooks": PEOPLE,
    "GET /api/webhooks/{webhook_id}": PEOPLE,
    "DELETE /api/webhooks/{webhook_id}": PEOPLE,
    "POST /api/webhooks/{webhook_id}/test": PEOPLE,
    # operating: figures, sessions and schedules tell of everybody's work
    "GET /api/stats": OPERATORS,
    "GET /api/audit": OPERATORS,
    "GET /api/workers": OPERATORS,
    "POST /api/workers/{session}/quiet": OPERATORS,
    "POST /api/kinds/{kind}/pause": OPERATORS,
    "POST /api/kinds/{kind}/resume": OPERATORS,
    "GET /api/schedules": OPERATORS,
    "POST /api/schedules": OPERATORS,
    "GET /api/schedules/{name}": OPERATORS,
    "PATCH /api/schedules/{name}": OPERATORS,
    "DELETE /api/schedules/{name}": OPERATORS,
    "POST /api/schedules/{name}/run": OPERATORS,
    "GET /api/ops/state": OPERATORS,
    "POST /api/ops/drain": OPERATORS,
    "GET /api/ops/doctor": OPERATORS,
    "GET /api/ops/config": OPERATORS,
    "PUT /api/ops/config": OPERATORS,
    "GET /api/tokens": ADMINS,
    "POST /api/tokens": ADMINS,
    "GET /api/tokens/self": PEOPLE,
    "DELETE /api/tokens/{token_id}": ADMINS,
    "POST /api/tokens/self/sign-in-link": PEOPLE,
}


def allowed(method: str, path: str) -> frozenset[str]:
    return ACCESS.get(f"{method} {path}", frozenset())
