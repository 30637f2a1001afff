"""The pages, one module each; `routes()` of all of them is what `paddock serve` adds to the app."""

from starlette.routing import Route

from paddock.web import assets
from paddock.web.pages import (
    audit,
    dumps,
    dumps_new,
    engines,
    events,
    exports,
    exports_new,
    groups,
    job,
    jobs,
    kinds,
    mappings,
    mappings_writing,
    overview,
    schedules,
    settings,
    sign_in,
    snapshots,
    webhooks,
    workers,
)

# In the order they are tried: `/exports/new` before `/exports/{export_id}`, and so on.
EXPORTS = (exports_new, exports, mappings_writing, mappings, snapshots, engines)
OPERATING = (groups, kinds, workers, schedules, events, webhooks, audit, settings)
DUMPS = (dumps_new, dumps)
PAGES = (overview, jobs, job, *EXPORTS, *DUMPS, *OPERATING, sign_in)


def routes() -> list[Route]:
    """Each stands in `paddock.api.access.ACCESS` like every other route."""
    return [*(route for page in PAGES for route in page.routes()), *assets.routes()]
