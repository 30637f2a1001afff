"""A chart's data and the table of its figures, from series that `paddock.jobs.charting` read.

charts = [Chart("throughput", "Throughput", [Line("completed", "good", series)])]
{% for chart in charts %}{{ ui.chart(chart.id, chart.title, chart.data, chart.rows) }}{% endfor %}
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paddock.jobs.charting import Series
from paddock.web import words

MOST_ROWS = 30


@dataclass(frozen=True, slots=True)
class Line:
    """`tone` is one of the stylesheet's colours: good, bad, busy, wait, soft, accent."""

    name: str
    tone: str
    series: Series
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened and may explain a bend: a deploy, a pause, a drain."""

    at: datetime
    name: str


@dataclass(frozen=True, slots=True)
class Chart:
    id: str
    title: str
    lines: Sequence[Line]
    marks: Sequence[Mark] = ()

    @property
    def data(self) -> dict[str, Any]:
        first = self.lines[0].series
        return {
            "unit": first.unit,
            "at": [int(point.at.timestamp()) for point in first.points],
            "lines": [
                {
                    "name": line.name,
                    "tone": line.tone,
                    "dashed": line.dashed,
                    "values": [_rounded(point.value) for point in line.series.points],
                }
                for line in self.lines
            ],
            "marks": [{"at": int(mark.at.timestamp()), "name": mark.name} for mark in self.marks],
        }

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Newest first, so few that a person can read them."""
        points = list(zip(*(line.series.points for line in self.lines), strict=True))
        step = max(1, -(-len(points) // MOST_ROWS))
        return [(found[0].at, *(self._text(point.value) for point in found)) for found in points[::-1][::step]]

    def _text(self, value: float | None) -> str:
        if value is None:
            return "–"
        return words.duration(value) if self.lines[0].series.unit == "seconds" else words.number(value)


def _rounded(value: float | None) -> float | None:
    """Four digits: a chart shows no more, and the page carries hundreds of them."""
    return None if value is None else float(f"{value:.4g}")
