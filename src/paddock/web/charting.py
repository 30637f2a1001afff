"""A chart's data and the table of its figures, from series that `paddock.jobs.figures.charting` read.

charts = [Chart("throughput", "Throughput", [ChartLine("completed", "good", series)])]
{% for chart in charts %}{{ ui.chart(chart.id, chart.title, chart.data, chart.rows, chart.text, chart.json) }}{% endfor %}
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson
from markupsafe import Markup

from paddock.jobs.figures.charting import Series
from paddock.jobs.figures.overviews import VersionChange, WorkerSeen
from paddock.web import words

MOST_ROWS = 24
MOST_MARKS = 20


@dataclass(frozen=True, slots=True)
class ChartLine:
    """`tone` is one of the stylesheet's colours: good, bad, busy, wait, soft, accent. `now` is what is said of it
    beside the title, as a text; None: its newest value."""

    name: str
    tone: str
    series: Series
    dashed: bool = False
    bars: bool = False
    now: str | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened and may explain a bend: a deploy, a pause, a drain. `sign` is the letter of its flag."""

    at: datetime
    name: str
    tone: str = "wait"
    sign: str = ""
    reason: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """`text` says what the numbers are; `nothing` what it means that there are none."""

    id: str
    title: str
    lines: Sequence[ChartLine]
    marks: Sequence[Mark] = ()
    text: str | None = None
    nothing: str = "Nothing in this time"

    @property
    def data(self) -> dict[str, Any]:
        first = self.lines[0].series
        return {
            "unit": first.unit,
            "from": int(first.points[0].at.timestamp()) if first.points else 0,
            "step": int(first.width.total_seconds()),
            "lines": [
                {
                    "name": line.name,
                    "tone": line.tone,
                    "dashed": line.dashed,
                    "bars": line.bars,
                    "now": line.now or self._text(_newest(line.series)),
                    "values": [_rounded(point.value) for point in line.series.points],
                }
                for line in self.lines
            ],
            "marks": [
                {"at": int(mark.at.timestamp()), "name": mark.name, "tone": mark.tone, "sign": mark.sign}
                for mark in self.marks
            ],
            "each": self._each,
            "nothing": None
            if any(point.value for line in self.lines for point in line.series.points)
            else self.nothing,
        }

    @property
    def json(self) -> Markup:
        return script_json(self.data)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Newest first, so few that a person can read them: each stands for several points, and nothing is left out."""
        together = self._together
        columns = [list(line.series.points) for line in self.lines]
        ends = range(len(columns[0]), 0, -together)
        merges = [_merge(line.series.metric) for line in self.lines]
        return [
            (
                columns[0][max(0, end - together)].at,
                *(
                    self._text(merge([point.value for point in column[max(0, end - together) : end]]))
                    for merge, column in zip(merges, columns, strict=True)
                ),
            )
            for end in ends
        ]

    @property
    def _together(self) -> int:
        return max(1, -(-len(self.lines[0].series.points) // MOST_ROWS))

    @property
    def _each(self) -> str | None:
        """What a row of the figures says of its points; None: it is one point."""
        if self._together == 1:
            return None
        length = words.duration(self.lines[0].series.width * self._together)
        return f"Each row is the {MERGED.get(self.lines[0].series.metric, 'highest')} of {length}."

    def _text(self, value: float | None) -> str:
        if value is None:
            return "–"
        return words.duration(value) if self.lines[0].series.unit == "seconds" else words.number(value)


MERGED = {"throughput": "average", "failures": "sum", "errors": "sum"}


def _merge(metric: str) -> Callable[[Sequence[float | None]], float | None]:
    """Many points as one: numbers are added up, rates averaged; of the rest the highest is told."""

    def merge(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        if not known:
            return None
        how = MERGED.get(metric)
        return sum(known) if how == "sum" else sum(known) / len(known) if how == "average" else max(known)

    return merge


def script_json(data: Any) -> Markup:
    """For a <script>: no text in it can end the element. A page has thousands of numbers, which Jinja's own way of
    writing them makes slow and long."""
    text = orjson.dumps(data).decode()
    for sign in "<>&'":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)  # noqa: S704  see above


def _newest(series: Series) -> float | None:
    return next((point.value for point in reversed(series.points) if point.value is not None), None)


def _rounded(value: float | None) -> float | None:
    """Four digits: a chart shows no more, and the page carries hundreds of them."""
    return None if value is None else float(f"{value:.4g}")


def marks_of(
    workers: Sequence[WorkerSeen],
    versions: Sequence[VersionChange],
    changes: Sequence[dict[str, Any]],
    since: datetime,
    step: timedelta,
) -> list[Mark]:
    """Newest first. What started together is one mark. Sessions are forgotten an hour after their end, so that of a time
    before only those starts are known whose workers have lived until then; which versions ran is remembered."""
    marks = [*_starts(workers, versions, max(step, timedelta(minutes=1))), *map(_change, changes)]
    newest = sorted((mark for mark in marks if mark.at >= since), key=lambda mark: mark.at, reverse=True)
    return newest[:MOST_MARKS]


CHANGES = {
    "pause": ("{} paused", "wait", "P"),
    "resume": ("{} resumed", "good", "R"),
    "drain_on": ("drain on", "wait", "D"),
    "drain_off": ("drain off", "good", "O"),
}


def _change(entry: dict[str, Any]) -> Mark:
    name, tone, sign = CHANGES[entry["action"]]
    subject = entry["subject"].partition(":")[2]
    return Mark(entry["at"], name.format(subject), tone, sign, entry["reason"], entry["actor"])


def _starts(workers: Sequence[WorkerSeen], versions: Sequence[VersionChange], together: timedelta) -> list[Mark]:
    """A version that comes is a deploy, one that comes back too, with all that started with it; so is one that only
    goes, as when a trial of it is ended."""
    groups = _started_together(workers, together)
    marks = []
    for change in sorted(versions, key=lambda change: change.at):
        for version in change.came:
            with_it = [
                group
                for group in groups
                if group[0].version == version and abs(group[0].started_at - change.at) <= together
            ]
            groups = [group for group in groups if group not in with_it]
            who = _who(with_it[0]) if with_it and change.role == "worker" else change.role
            marks.append(Mark(change.at, f"version {version} deployed: {who}", "accent", "V"))
        if not change.came:
            marks.append(
                Mark(change.at, f"version {', '.join(change.went)} gone: no {change.role} has it", "accent", "V")
            )
    return marks + [Mark(group[0].started_at, f"{_who(group)} started", "accent", "S") for group in groups]


def _started_together(workers: Sequence[WorkerSeen], together: timedelta) -> list[list[WorkerSeen]]:
    groups: list[list[WorkerSeen]] = []
    for worker in sorted((worker for worker in workers if worker.version), key=lambda worker: worker.started_at):
        newest = next((group for group in reversed(groups) if group[0].version == worker.version), None)
        if newest is not None and worker.started_at - newest[0].started_at <= together:
            newest.append(worker)
        else:
            groups.append([worker])
    return groups


def _who(group: Sequence[WorkerSeen]) -> str:
    return group[0].worker_id if len(group) == 1 else f"{len(group)} workers"
