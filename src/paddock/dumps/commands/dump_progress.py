"""How far a dump or its download is: one bar on a terminal, lines now and then elsewhere. All of it on stderr: standard
output is for the answer, or for the dump itself."""

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from paddock.amounts import size, span
from paddock.cli.connection import Server
from paddock.cli.jobs.progress import amounts, left, percent
from paddock.cli.jobs.streaming import watch
from paddock.cli.output import Item
from paddock.cli.why import explained
from paddock.jobs.reports import how_far

if TYPE_CHECKING:
    from rich.progress import Progress

# A rate is that of the last so many seconds.
WINDOW = 5.0
# Between two lines where there is no bar.
LINE_SECONDS = 2.0

# What is shown: percent if known, and words.
Shown = Callable[[float | None, str, str], None]


class Rate:
    """Bytes in a second, by what was told and when."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def __call__(self, done: int, now: float) -> float | None:
        if self._seen and done < self._seen[-1][1]:  # begun anew
            self._seen.clear()
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] > WINDOW:
            self._seen.popleft()
        seconds = now - self._seen[0][0]
        return (done - self._seen[0][1]) / seconds if seconds > 0 else None


def follow(server: Server, job: str, *, quiet: bool) -> Item:
    """The job of a dump once it has ended."""
    if quiet:
        [ended] = watch(server, [job], lambda _: None)
        return ended
    rate = Rate()
    with progress_bar() as show:

        def changed(now: Item) -> None:
            if now["status"] == "completed":
                show(100.0, "done", "")
                return
            report = now.get("report")
            if now["status"] == "pending" and (not report or now["failure_count"] or now["cluster_count"]):
                show(percent(now), "waiting", explained(server, job)[1].sentence)
                return
            if not report:
                show(None, "starting", "")
                return
            done = report.get("bytes")
            speed = rate(done, time.monotonic()) if isinstance(done, int) else None
            show(percent(now), str(report.get("phase", "working")), words(report, speed))

        [ended] = watch(server, [job], changed)
    return ended


def words(report: Item, speed: float | None) -> str:
    """`orders (3 of 12), 120,000 rows, 8.4 MB, 3.1 MB/s, 12 s left`."""
    table, done, total = (report.get(name) for name in ("table", "tables_done", "tables_total"))
    known = how_far(report)
    parts = [
        str(report["reason"]) if report.get("phase") == "waiting" and report.get("reason") else None,
        f"{table} ({min(int(done) + 1, int(total))} of {total})" if table and total and done is not None else None,
        *(amounts(known) if any(known.amounts.values()) else ()),
        f"{size(speed)}/s" if speed else None,
        left(known),
    ]
    return ", ".join(part for part in parts if part)


@contextlib.contextmanager
def downloading(*, quiet: bool, phase: str = "downloading") -> Iterator[Callable[[int, int], None]]:
    """To be told of bytes done and all there are."""
    if quiet:
        yield lambda done, total: None
        return
    rate = Rate()
    with progress_bar() as show:

        def report(done: int, total: int) -> None:
            speed = rate(done, time.monotonic())
            left = f"{span((total - done) / speed)} left" if speed and done < total else None
            parts = [f"{size(done)} of {size(total)}", f"{size(speed)}/s" if speed else None, left]
            show(100 * done / total if total else 100.0, phase, ", ".join(part for part in parts if part))

        yield report


@contextlib.contextmanager
def progress_bar() -> Iterator[Shown]:
    if not sys.stderr.isatty():
        yield _Lines()
        return
    with _bar() as progress:
        task = progress.add_task("", total=100, words="")

        def show(percent: float | None, phase: str, words: str) -> None:
            drawn: dict[str, Any] = {
                "completed": percent or 0,
                "description": phase,
                "words": words.replace("[", "\\["),
            }
            # A bar that only moves to and fro where nobody knows how much there is.
            progress.update(task, total=None if percent is None else 100, **drawn)

        yield show


class _Lines:
    """One for each phase, for each tenth of it that took a while, and for each reason to wait."""

    def __init__(self) -> None:
        self._before, self._tenth, self._at = "", 0, 0.0

    def __call__(self, percent: float | None, phase: str, words: str) -> None:
        tenth, now = int((percent or 0) // 10), time.monotonic()
        what = f"{phase} {words}" if phase == "waiting" else phase
        if phase == "done" or (what == self._before and (tenth == self._tenth or now - self._at < LINE_SECONDS)):
            return
        self._before, self._tenth, self._at = what, tenth, now
        share = "" if percent is None else f"{percent:3.0f} %"
        sys.stderr.write(f"{phase:<12} {share:>5}  {words}".rstrip() + "\n")
        sys.stderr.flush()


def _bar() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TextColumn("{task.fields[words]}"),
        console=Console(stderr=True, highlight=False),
    )
