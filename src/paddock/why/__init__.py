"""What happened to a job, in words, and what to do about it: the same for the command line and the dashboard."""

from paddock.why.case import SILENT
from paddock.why.explaining import Explanation, explain
from paddock.why.steps import Step, steps
from paddock.why.words import Place, Quote, Since, Until, Words, span

__all__ = [
    "SILENT",
    "Explanation",
    "Place",
    "Quote",
    "Since",
    "Step",
    "Until",
    "Words",
    "explain",
    "span",
    "steps",
]
