"""The form of a schedule: what it shows, what was written into it, and what is wrong with that, field by field."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from paddock.api import bodies, durations
from paddock.api.errors import ApiError, invalid_field
from paddock.jobs.errors import Refused
from paddock.jobs.model import NORMAL
from paddock.jobs.schedules import NewSchedule, Schedule
from paddock.log import masked
from paddock.web.form_problems import named_fields
from paddock.web.frame import clean
from paddock.web.planning import Planned
from paddock.web.words import pretty

FIELDS = (
    "name",
    "kind",
    "timing",
    "on",
    "at",
    "every",
    "cron",
    "timezone",
    "payload",
    "priority",
    "tags",
    "enabled",
    "of",
)
# The days of a schedule in plain words, by what cron has in their place: day of the month, and weekday.
DAYS: Mapping[str, str] = {
    "* *": "Every day",
    "* 1-5": "Monday to Friday",
    "* 1": "Every Monday",
    "* 2": "Every Tuesday",
    "* 3": "Every Wednesday",
    "* 4": "Every Thursday",
    "* 5": "Every Friday",
    "* 6": "Every Saturday",
    "* 0": "Every Sunday",
    "1 *": "The first of every month",
}
USUAL_DAYS = ("* *", "02:30")
TIME_OF_DAY = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])\Z")
# What `_cron_of_days` writes.
CRON_OF_DAYS = re.compile(r"([0-9]|[1-5][0-9]) ([0-9]|1[0-9]|2[0-3]) (\*|1) \* (\*|1-5|[0-6])\Z")
SHORT_UNITS = ((604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True, slots=True)
class Form:
    """Texts as a person wrote them. `timing` is which of the three counts: `days` with its `on` and `at`, `every` or `cron`.
    `of` is what the form was opened for, like "export:019a…"."""

    name: str = ""
    kind: str = ""
    timing: str = "cron"
    on: str = USUAL_DAYS[0]
    at: str = USUAL_DAYS[1]
    every: str = ""
    cron: str = ""
    timezone: str = "UTC"
    payload: str = "{}"
    priority: str = str(NORMAL)
    tags: str = ""
    enabled: str = "on"
    of: str = ""
    problems: Mapping[str, str] = field(default_factory=dict)

    def refused(self, error: ApiError | Refused) -> "Form":
        """The same with what is wrong where it is wrong. What names no field of the form is raised again."""
        problems: dict[str, str] = {}
        for place, message in named_fields(error):
            name, inside, _ = place.partition(".")
            if inside or name not in FIELDS:
                # All of what is wrong inside of the payload, each with its place.
                before = f"{problems['payload']} " if "payload" in problems else ""
                problems["payload"] = f"{before}{place}: {message}"
            else:
                problems.setdefault(name, message)
        if isinstance(error, Refused) and error.code == "schedule_exists":
            problems = {"name": error.message}
        if isinstance(error, ApiError) and error.code in ("kind_internal", "kind_not_allowed"):
            problems = {"kind": error.message}
        if isinstance(error, ApiError) and error.code == "owner_not_allowed":
            problems = {"payload": error.message}
        if not problems:
            raise error
        return replace(self, problems=problems)


def filled(values: Mapping[str, Any]) -> Form:
    """From what a browser sent; a checkbox that is not ticked sends nothing."""
    texts: dict[str, Any] = {name: clean(str(values.get(name) or "")) for name in FIELDS}
    return Form(**{**texts, "timezone": texts["timezone"] or "UTC"})


def form_for(planned: Planned, of: str) -> Form:
    """For what somebody wants to have scheduled."""
    return Form(name=planned.name, kind=planned.kind, timing="days", payload=pretty(planned.payload), of=of)


def form_of(schedule: Schedule) -> Form:
    days = _days_of_cron(schedule.cron)
    on, at = days or USUAL_DAYS
    return Form(
        name=schedule.name,
        kind=schedule.kind,
        timing="days" if days is not None else "cron" if schedule.cron is not None else "every",
        on=on,
        at=at,
        every=short_duration(schedule.every),
        cron=schedule.cron or "",
        timezone=schedule.timezone,
        payload=pretty(masked(schedule.payload)),
        priority=str(schedule.priority),
        tags=", ".join(schedule.tags),
        enabled="on" if schedule.enabled else "",
    )


def values_of(form: Form) -> dict[str, Any]:
    """What the form means. Raises with every field that cannot be read."""
    wrong: list[Mapping[str, str]] = []

    def read(name: str, parse: Any) -> Any:
        try:
            return parse()
        except ApiError as error:
            [(place, message), *_] = named_fields(error) or [(name, error.message)]
            wrong.append({"field": place if place in FIELDS else name, "message": message})
            return None

    every, cron = read("every", lambda: timing_of(form)) or (None, None)
    values = {
        "kind": form.kind,
        "every": every,
        "cron": cron,
        "timezone": form.timezone,
        "payload": read("payload", lambda: _payload(form.payload)),
        "priority": read("priority", lambda: _priority(form.priority)),
        "tags": [tag for word in form.tags.split(",") if (tag := word.strip())],
        "enabled": form.enabled == "on",
    }
    if not form.kind:
        wrong.append({"field": "kind", "message": "Choose the kind of job it makes."})
    if wrong:
        raise ApiError(422, "invalid", "The schedule is not valid.", details={"fields": wrong})
    return values


def timing_of(form: Form) -> tuple[timedelta | None, str | None]:
    if form.timing == "days":
        return None, _cron_of_days(form)
    if form.timing == "cron":
        if not form.cron:
            raise invalid_field("cron", "Write when it runs, like 30 2 * * 1-5: at 2:30 from Monday to Friday.")
        return None, form.cron
    if not form.every:
        raise invalid_field("every", "Write how often it runs, like 15m, 1h or 7d.")
    return durations.parse(form.every, "every"), None


def _cron_of_days(form: Form) -> str:
    if form.on not in DAYS:
        raise invalid_field("on", "Choose the days on which it runs.")
    time = TIME_OF_DAY.match(form.at)
    if time is None:
        raise invalid_field("at", "Write the time of day, like 02:30.")
    day, weekday = form.on.split()
    return f"{int(time[2])} {int(time[1])} {day} * {weekday}"


def _days_of_cron(cron: str | None) -> tuple[str, str] | None:
    """The days and the time, as the form writes it; None: it says more than that."""
    found = CRON_OF_DAYS.match(cron or "")
    if found is None or (on := f"{found[3]} {found[4]}") not in DAYS:
        return None
    return on, f"{int(found[2]):02}:{int(found[1]):02}"


def changes_to(old: Schedule, values: Mapping[str, Any]) -> dict[str, Any]:
    """Only what differs: the audit log names what somebody changed. Secrets that were shown masked stay as they are."""
    new = dict(values) | {"payload": unmasked(values["payload"], old.payload)}
    before = {name: getattr(old, name) for name in new} | {"tags": list(old.tags)}
    return {name: value for name, value in new.items() if value != before[name]}


def new_schedule(form: Form, values: Mapping[str, Any], owner: str) -> NewSchedule:
    return NewSchedule(name=form.name, owner=owner, **values)


def unmasked(shown: Any, real: Any) -> Any:
    """What was shown and not changed is what it was behind its mask."""
    if shown == masked(real):
        return real
    if isinstance(shown, dict) and isinstance(real, Mapping):
        hidden = masked(real)  # by name: a value alone does not tell that it is one
        return {
            key: value if key not in real else real[key] if value == hidden[key] else unmasked(value, real[key])
            for key, value in shown.items()
        }
    if isinstance(shown, list) and isinstance(real, list) and len(shown) == len(real):
        return [unmasked(one, other) for one, other in zip(shown, real, strict=True)]
    return shown


def short_duration(every: timedelta | None) -> str:
    """As one types it: 15m, 1h, 7d."""
    if every is None:
        return ""
    seconds = int(every.total_seconds())
    if every.total_seconds() != seconds:
        return durations.iso(every) or ""
    return next(f"{seconds // size}{unit}" for size, unit in SHORT_UNITS if seconds % size == 0)


def _payload(text: str) -> dict[str, Any]:
    value = bodies.parse((text or "{}").encode())
    if not isinstance(value, dict):
        raise invalid_field("payload", 'The payload is a JSON object, like {"turns": 3}.')
    return value


def _priority(text: str) -> int:
    if text not in ("1", "2", "3", "4"):
        raise invalid_field("priority", "Choose 1 (urgent) to 4 (low).")
    return int(text)
