"""Rows of the list of jobs, drawn once for all who look at them.

A list asks again and again for the rows on screen, and many look at the same list. What ended does not change any more,
but for being retried; so its row is remembered. Its "3 min ago" is put right by the browser, as while the page stays open:
only what a script asks for may come from here.
"""

from collections.abc import Callable, Hashable

from markupsafe import Markup

from paddock.jobs.model import Job

# About 3 kB each.
MOST_ROWS = 2_000


class Rows:
    def __init__(self) -> None:
        self._drawn: dict[Hashable, Markup] = {}

    def drawn(self, job: Job, look: Hashable, draw: Callable[[Job], Markup]) -> Markup:
        """`look`: all that the row depends on besides its job."""
        if not job.ended:
            return draw(job)
        key = (job.id, job.retried_by, look)
        row = self._drawn.get(key)
        if row is None:
            row = self._drawn[key] = draw(job)
            if len(self._drawn) > MOST_ROWS:
                del self._drawn[next(iter(self._drawn))]
        return row
