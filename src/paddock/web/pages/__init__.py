"""The pages, one module each; `routes()` of all of them is what `paddock serve` adds to the app."""

from starlette.routing import Route

from paddock.web import assets
from paddock.web.pages import (
    audit,
    events,
    groups,
    job,
    jobs,
    kinds,
    overview,
    schedules,
    settings,
    sign_in,
    webhooks,
    workers,
)

PAGES = (overview, jobs, job, groups, kinds, workers, schedules, events, webhooks, audit, settings, sign_in)


def routes() -> list[Route]:
    """Each stands in `paddock.api.access.ACCESS` like every other route."""
    return [*(route for page in PAGES for route in page.routes()), *assets.routes()]
