"""Writes docs/reference/ from the code, so that neither can say what the other does not.

Each page is a function without arguments that returns Markdown. A page whose module cannot be imported is left as it
is, with a note on stderr. `--check` writes nothing and fails when a page is not what the code says.
"""

import inspect
import io
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
HEADER = "<!-- Written by scripts/reference from the code: change that, then run it. -->\n\n"


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = list(header)
    lines = [f"| {' | '.join(cells)} |", "|" + "---|" * len(cells)]
    lines += [f"| {' | '.join(text.replace('|', chr(92) + '|') for text in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def configuration() -> str:
    from paddock import config

    groups = {name: group for group, names in config.TABLES.items() for name in names}
    older: dict[str, list[str]] = {}
    for variable, name in config.OLDER_NAMES.items():
        older.setdefault(name, []).append(variable)
    notes = _comments(config.Config)
    rows = [
        (
            code(config.PREFIX + name.upper()),
            code(_key(groups[name], name)) if name in groups else code(name),
            _default(name, field),
            ", ".join(map(code, older.get(name, []))),
            notes.get(name, ""),
        )
        for name, field in config.Config.model_fields.items()
    ]
    return (
        "# Settings\n\n"
        "The environment wins over `paddock.toml` (or the file that `PADDOCK_CONFIG` names), which wins over the"
        " default. `paddock config show` prints the effective values and where each came from, secrets masked. A"
        " setting that does not exist or has a bad value stops the start with one sentence that names it.\n\n"
        f"Each older name below may also be written with `{config.OLDER_PREFIX}` before it.\n\n"
        + table(("variable", "in paddock.toml", "default", "older names", "when it is not set"), rows)
    )


def _key(group: str, name: str) -> str:
    return f"{group}.{name.removeprefix(f'{group}_')}"


def _default(name: str, field: Any) -> str:
    # Made when the process starts, from where it runs.
    made = {
        "object_store": "`objects` in the data folder",
        "scratch": "`scratch` in the data folder",
        "worker_id": "`HOSTNAME`, else `worker-{pid}`",
    }
    if name in made:
        return made[name]
    default = field.get_default(call_default_factory=field.default_factory is not None)
    if default is None or default in ((), {}):
        return "-"
    return code(str(default).lower() if isinstance(default, bool) else str(default))


def _comments(of: type) -> dict[str, str]:
    """The comment at the end of a field's line says what None means there."""
    found = re.findall(r"^ {4}(\w+): .*# None: (.+)$", inspect.getsource(of), re.MULTILINE)
    return dict(found)


def metrics() -> str:
    from prometheus_client import CollectorRegistry

    from paddock.metrics import Labelled, Metrics

    rows = []
    for value in vars(Metrics(CollectorRegistry())).values():
        metric = value.metric if isinstance(value, Labelled) else value
        if not hasattr(metric, "describe"):
            continue
        [described] = metric.describe()
        name = f"{described.name}_total" if described.type == "counter" else described.name
        rows.append((code(name), described.type, ", ".join(map(code, metric._labelnames)), described.documentation))
    return (
        "# Metrics\n\nIn the text format of Prometheus, at `/metrics` of `paddock serve` and of `paddock worker`.\n\n"
        + table(("name", "type", "labels", "what it says"), sorted(rows))
    )


def commands() -> str:
    from paddock.cli.app import build
    from paddock.cli.commands import SECTIONS, overview

    app = build()
    parts = [f"# Commands\n\n```text\n{overview().rstrip()}\n```\n"]
    for section in SECTIONS:
        for command in section.commands:
            for verb in [*([""] if command.alone or not command.verbs else []), *command.verbs.split()]:
                words = [command.name, *([verb] if verb else [])]
                parts.append(f"## paddock {' '.join(words)}\n\n```text\n{_help(app, words)}\n```\n")
    return "\n".join(parts)


def _help(app: Any, words: list[str]) -> str:
    """A command's help without the frames, and without the options that say where the server is: all have them."""
    from rich.console import Console

    page = io.StringIO()
    app.help_print(words, console=Console(file=page, width=110, color_system=None))
    lines, panel = [], ""
    for line in page.getvalue().splitlines():
        if line.startswith("╭"):
            panel = line.strip("╭─╮ ")
            lines.append("" if panel == "Server" else f"{panel}:")
        elif line.startswith("│") and panel != "Server":
            lines.append(f"  {line[2:-1].rstrip()}")
        elif not line.startswith(("│", "╰")):
            lines.append(line.rstrip())
    return "\n".join(lines).strip()


def routes() -> str:
    from fastapi import FastAPI

    from paddock import doctor, dumps, exports
    from paddock.api.access import ACCESS
    from paddock.api.app import ROUTERS, openapi

    app = FastAPI()
    for router in (*ROUTERS, doctor.router(), *exports.routers(), *dumps.routers()):
        app.router.routes.extend(router.routes)
    documented: Mapping[str, Mapping[str, Any]] = openapi(app)["paths"]
    rows = []
    for route, roles in ACCESS.items():
        method, path = route.split(" ", 1)
        operation = documented.get(path, {}).get(method.lower(), {})
        rows.append((code(route), ", ".join(sorted(roles)), operation.get("summary", "")))
    return (
        "# HTTP routes\n\n"
        "The whole document, with bodies, answers and examples, is at `/openapi.json` of a running control plane."
        " What an analyst reaches is only their own work, on every route.\n\n"
        + table(("route", "who may", "does"), rows)
    )


def kinds() -> str:
    from paddock.dumps.scheduled import SCHEDULED as SCHEDULED_DUMP
    from paddock.exports.scheduled import SCHEDULED as SCHEDULED_EXPORT
    from paddock.jobs import upkeep
    from paddock.jobs.probe import PROBE, PROBE_BLOCKING
    from paddock.jobs.webhook import WEBHOOK

    about = (
        "# Built-in kinds\n\nWhat a kind declares and what each word means is in [extending](../extending.md)."
        " `GET /api/kinds` lists all kinds of an installation, other packages' too.\n"
    )
    parts = [about]
    shown: dict[type, str] = {}
    for kind in (PROBE, PROBE_BLOCKING, SCHEDULED_EXPORT, SCHEDULED_DUMP, WEBHOOK, *upkeep.KINDS):
        retry = kind.retry
        facts = {
            "submitted by": ", ".join(sorted(kind.submit)) if kind.submit else "code only",
            "runs in": "`paddock serve`" if kind.internal else "`paddock worker`",
            "handler": "blocking, in a child process" if kind.blocking else "async",
            "transient failures forgiven": f"{retry.limit}, after {_span(retry.first)} doubling to {_span(retry.cap)}",
            "cluster pressure forgiven": str(retry.cluster_limit),
            "lost workers forgiven": str(retry.loss_limit) if kind.may_repeat else "0: it is never repeated",
            "turn, total, stall time-out": ", ".join(
                _span(limit) for limit in (kind.turn_timeout, kind.total_timeout, kind.stall_timeout)
            ),
            "grace at shutdown": _span(kind.grace),
            "cleanup": "yes" if kind.cleanup else "no",
            "at most one at a time": "yes" if kind.serial else "no",
        }
        parts.append(f"## {kind.name}\n\n{_about(kind.handler)}{table(('', ''), facts.items())}")
        if kind.payload in shown:
            parts.append(f"Its payload is that of {shown[kind.payload]}.\n")
        elif kind.payload.model_fields:
            shown[kind.payload] = kind.name
            parts.append(table(("payload", "type", ""), _fields(kind.payload)))
    return "\n".join(parts)


def _fields(payload: Any) -> Iterable[tuple[str, str, str]]:
    for name, field in payload.model_fields.items():
        yield code(name), code(_type(field.annotation)), field.description or ""


def _type(annotation: Any) -> str:
    """The same text on every version of Python."""
    if annotation is type(None):
        return "None"
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(map(_type, get_args(annotation)))
    if get_origin(annotation) is Literal:
        return " | ".join(f'"{value}"' for value in get_args(annotation))
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _about(handler: Callable[..., Any]) -> str:
    """The first paragraph of the handler's module."""
    text = inspect.getdoc(inspect.getmodule(handler)) or ""
    return text.split("\n\n")[0].replace("\n", " ") + "\n\n" if text else ""


def _span(span: timedelta | None) -> str:
    if span is None:
        return "none"
    seconds = span.total_seconds()
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


STATUS_TEXTS = {
    "pending": "Waits until it is due (`due_at`) and a worker has a free slot.",
    "claimed": "A worker runs a turn of it and holds its `attempt_id`.",
    "submitted": "Something else does the work (`waiting_on`); the next turn looks after it.",
    "completed": "Ended with a result.",
    "failed": "Ended with an error: a permanent one, or one failure more than its kind forgives.",
    "cancelled": "Ended because somebody said so.",
}
VERDICT_TEXTS = {
    "accepted": "The attempt holds the job, and the write was made.",
    "already_yours": "This attempt's own write, repeated after a lost answer: a success.",
    "cancelled": "The job was cancelled: stop and clean up.",
    "stale_attempt": "The job moved on without this attempt: stop, and leave nothing behind.",
    "invalid": "The value cannot be stored (size, depth, NUL, NaN).",
    "unknown": "There is no such job.",
}
OUTCOME_TEXTS = {
    "Done": "The job is `completed`, with its result, events and follow-up jobs in one transaction.",
    "Again": "The job is `pending`, or `submitted` with `waiting_on`; due after the delay. Spends nothing.",
    "TransientFailure": "The job is due again after a backoff, until its budget is spent: then `failed`.",
    "PermanentFailure": "The job is `failed` at once.",
}


def states() -> str:
    from paddock.jobs import model
    from paddock.jobs.outcomes import Outcome

    def rows(names: Iterable[str], texts: Mapping[str, str]) -> list[tuple[str, str]]:
        known = list(names)
        assert set(known) == set(texts), f"{sorted(set(known) ^ set(texts))} is described or exists, not both"
        return [(code(name), texts[name]) for name in known]

    limits = [
        ("saved state", f"{model.MAX_SAVED_BYTES:,} bytes of JSON"),
        ("payload", f"{model.MAX_PAYLOAD_BYTES:,} bytes of JSON"),
        ("result", f"{model.MAX_RESULT_BYTES:,} bytes of JSON"),
        ("report", f"{model.MAX_REPORT_BYTES:,} bytes of JSON"),
        ("depth of any of them", f"{model.MAX_DEPTH}"),
        ("tags", f"{model.MAX_TAGS}, of {model.MAX_TAG_LENGTH} characters each"),
        ("error message", f"{model.MAX_ERROR_MESSAGE:,} characters"),
    ]
    outcomes = rows((outcome.__name__ for outcome in get_args(Outcome)), OUTCOME_TEXTS)
    return (
        "# States, verdicts, outcomes, limits\n\n## Statuses of a job\n\n"
        + table(("status", "meaning"), rows(model.STATUSES, STATUS_TEXTS))
        + "\nThe last three are terminal: an ended job never changes.\n\n## Verdicts of the fence\n\n"
        + table(("verdict", "meaning"), rows((verdict.value for verdict in model.Verdict), VERDICT_TEXTS))
        + "\n## Outcomes of a turn\n\n"
        + table(("outcome", "the job then"), outcomes)
        + "\n## Limits\n\n"
        + table(("what", "at most"), limits)
    )


def types() -> str:
    from paddock.engines.children import duckdb_types, sqlite_types
    from paddock.engines.postgres import types as postgres_types
    from paddock.engines.trino import types as trino_types
    from paddock.exports import arrow_types

    declared = [(code(name), code(str(arrow))) for name, arrow in arrow_types.SCALARS.items()]
    declared += [
        (code("DECIMAL(p,s)"), "`decimal128(p, s)`, p up to 38"),
        (code("LIST(t)"), "list"),
        (code("MAP(k, v)"), "map"),
        (code("STRUCT(a t, …)"), "struct"),
    ]
    duckdb = [
        (
            code(name.upper()),
            code(str(rule.arrow)) if rule.arrow is not None else "refused",
            rule.refused or (f"cast to {rule.cast} by DuckDB" if rule.cast else ""),
        )
        for name, rule in duckdb_types.TYPES.items()
    ]
    sqlite = [(code(name), code(str(kind.arrow))) for name, kind in sqlite_types.TYPES.items()]
    sqlite += [(f"contains `{part}`", code(str(kind.arrow))) for part, kind in sqlite_types.AFFINITIES]
    sqlite.append((code("DECIMAL(p,s)"), "`decimal128(p, s)`"))
    postgres = [
        (code(one.name), code(str(one.arrow)) if one.arrow is not None else "see the note", one.parquet, one.note)
        for one in postgres_types.TYPES
    ]
    trino = [(code(one.raw), code(str(one.arrow(one.example))), one.parquet, one.note) for one in trino_types.TYPES]
    return (
        "# What each type becomes\n\n"
        "Types are declared by the engine or the mapping, never guessed from values. What cannot be kept exactly fails"
        " and names its column and the cast to write; nothing is rounded. Nested types follow their parts.\n\n"
        "## In a mapping\n\n"
        "A query may give anything whose every value the declared type holds: narrower integers, shorter decimals,"
        " coarser times. Keys of nodes are STRING, INT64, DATE or UUID.\n\n"
        + table(("declared", "in the file"), declared)
        + "\n## DuckDB\n\n"
        + table(("DuckDB", "in the file", ""), duckdb)
        + "\n## Trino and Starburst\n\n"
        + table(("Trino", "Arrow, by example", "Parquet", ""), trino)
        + "\n## PostgreSQL\n\n"
        + table(("PostgreSQL", "Arrow", "Parquet", ""), postgres)
        + "\n## SQLite\n\n"
        "By the column's declared type; an expression needs a CAST. A value of another kind than declared fails and"
        " names its row.\n\n" + table(("declared", "in the file"), sqlite)
    )


PAGES: Mapping[str, Callable[[], str]] = {
    "settings.md": configuration,
    "metrics.md": metrics,
    "commands.md": commands,
    "routes.md": routes,
    "kinds.md": kinds,
    "states.md": states,
    "types.md": types,
}


def render(name: str) -> str:
    return HEADER + PAGES[name]().rstrip() + "\n"


def main(arguments: list[str]) -> int:
    stale = []
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        try:
            text = render(name)
        except ImportError as missing:
            print(f"{name} is left as it is: {missing}.", file=sys.stderr)
            continue
        path = FOLDER / name
        if arguments != ["--check"]:
            path.write_text(text, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != text:
            stale.append(name)
    if stale:
        print(f"Not what the code says: {', '.join(stale)}. Run scripts/reference.", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
