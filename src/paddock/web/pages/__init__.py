"""The pages, one module each; `routes()` of all of them is what `paddock serve` adds to the app."""

from starlette.routing import Route

from paddock.capability import each, leaving_out
from paddock.web import assets
from paddock.web.pages import (
    audit,
    events,
    groups,
    job,
    jobs,
    kinds,
    kinds_submitting,
    overview,
    schedules,
    settings,
    sign_in,
    webhooks,
    workers,
)

PAGES = (
    overview,
    jobs,
    job,
    groups,
    kinds,
    kinds_submitting,
    workers,
    schedules,
    events,
    webhooks,
    audit,
    settings,
    sign_in,
)


def routes() -> list[Route]:
    """The core's pages and the capabilities', in the order they are tried."""
    found = [route for page in PAGES for route in page.routes()]
    for capability, page in each("pages"):
        with leaving_out(capability):
            found += page.routes()
    return [*found, *assets.routes()]
