"""A job's transitions in words, oldest first."""

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.why.case import Facts, reason
from paddock.why.words import s


@dataclass(frozen=True)
class Step:
    at: str
    text: str


def steps(timeline: Sequence[Facts]) -> list[Step]:
    return [Step(str(entry.get("at")), _step(entry)) for entry in timeline]


def _step(entry: Facts) -> str:
    worker = entry.get("worker") or "a worker"
    by = f" by {entry['actor']}" if entry.get("actor") else ""
    given = f" ({entry['reason']})" if entry.get("reason") else ""
    back = "waits outside" if entry.get("to") == "submitted" else "waits"
    texts = {
        "enqueued": f"asked for{by}",
        "claimed": f"taken by {worker}",
        "yielded": f"ended {entry.get('count', 1)} turn{s(entry.get('count', 1))} to go on later",
        "retry": f"failed on {worker}: {reason(entry)}; {back} to be tried again",
        "released": f"given back by {worker}{given}",
        "rescued": f"{worker} was lost; given back",
        "worker_lost": f"{worker} was lost; not given to another",
        "cancelled": f"cancelled{by}{given}",
        "timed_out": f"ended for taking too long{given}",
        "stale_write": f"a late write was refused{given}",
        "run_now": f"made due at once{by}",
        "completed": f"completed on {worker}",
        "failed": f"failed on {worker}: {reason(entry)}",
    }
    event = str(entry.get("event"))
    return texts.get(event, f"{event.replace('_', ' ')}{by}{given}")
