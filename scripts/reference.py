"""Writes docs/reference/ from the code, so that neither can say what the other does not.

Each page is a function without arguments that returns Markdown. A page whose module cannot be imported is left as it
is, with a note on stderr. `--check` writes nothing and fails when a page is not what the code says.
"""

import inspect
import io
import re
import sys
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin
from uuid import UUID

if TYPE_CHECKING:
    from paddock.jobs.kinds import Kinds

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

    known = config.known_settings()
    notes = {model: _comments(model) for model in {setting.model for setting in known.values()}}
    rows = [
        (
            code(config.PREFIX + name.upper()),
            code(_key(setting.table, name)) if setting.table else code(_at_top(name, known)),
            _default(name, setting.info),
            ", ".join(map(code, setting.older)),
            notes[setting.model].get(setting.field, ""),
        )
        for name, setting in known.items()
    ]
    return (
        "# Settings\n\n"
        "The environment wins over `paddock.toml` (or the file that `PADDOCK_CONFIG` names), which wins over the"
        " default. `paddock config show` prints the effective values and where each came from, secrets masked. A"
        " setting that does not exist or has a bad value stops the start with one sentence that names it.\n\n"
        f"Each older name below may also be written with `{config.OLDER_PREFIX}` before it.\n\n"
        + table(("variable", "in paddock.toml", "default", "older names", "when it is not set"), rows)
    )


def _at_top(name: str, known: Container[str]) -> str:
    """A table in a table, like `[runtime.kubernetes]`, where the outer one is the name of another setting."""
    outer, _, inner = name.partition("_")
    return f"{outer}.{inner}" if inner and outer in known else name


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

    from paddock.capability import each
    from paddock.metrics import Metrics
    from paddock.pass_metrics import PassMetrics
    from paddock.runtimes.kubernetes.metrics import KubernetesMetrics

    # A capability's metrics stand in the module that sets its gauges; those of background jobs are in `PassMetrics`.
    own = [(capability, _described(inspect.getmodule(sample))) for capability, sample in each("gauges")]
    heads = ("name", "type", "labels", "what it says")
    return (
        "# Metrics\n\nIn the text format of Prometheus, at `/metrics` of `paddock serve` and of `paddock worker`.\n\n"
        + table(heads, sorted(_described(Metrics(CollectorRegistry()))))
        + "\n## Background jobs\n\nOf `paddock serve` alone. What the database tells (gauges) reads the same on every replica.\n\n"
        + table(heads, sorted(_described(PassMetrics(CollectorRegistry()))))
        + "".join(
            f"\n## {capability.title}\n\nOf `paddock serve` alone.\n\n{table(heads, sorted(rows))}"
            for capability, rows in own
            if rows
        )
        + "\n## Kubernetes\n\nOf whoever talks to the API server: `paddock serve`, and workers whose jobs run on the cluster.\n\n"
        + table(heads, sorted(_described(KubernetesMetrics(CollectorRegistry()))))
    )


def _described(metrics: object) -> list[tuple[str, str, str, str]]:
    from paddock.metrics import Labelled

    rows = []
    held = [
        each for value in vars(metrics).values() for each in (value.values() if isinstance(value, dict) else (value,))
    ]
    for value in held:
        metric = value.metric if isinstance(value, Labelled) else value
        if isinstance(metric, type) or not hasattr(metric, "describe"):
            continue
        [described] = metric.describe()
        name = f"{described.name}_total" if described.type == "counter" else described.name
        rows.append((code(name), described.type, ", ".join(map(code, metric._labelnames)), described.documentation))
    return rows


def commands() -> str:
    from paddock.cli.app import build
    from paddock.cli.commands import overview, sections

    app = build()
    parts = [f"# Commands\n\n```text\n{overview().rstrip()}\n```\n"]
    for section in sections():
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

    from paddock import doctor
    from paddock.api import health
    from paddock.api.access import OPEN, table_of
    from paddock.api.app import internal_routes, openapi, public_routes
    from paddock.web import pages

    app = FastAPI(openapi_url=None)  # with it come routes of its own
    app.router.routes.extend(public_routes([doctor.router()], pages.routes()))
    documented: Mapping[str, Mapping[str, Any]] = openapi(app)["paths"]
    access = table_of([*app.routes, *internal_routes(), *health.metrics_router.routes])
    rows = []
    for route, roles in sorted(access.items(), key=_place):
        method, path = route.split(" ", 1)
        operation = documented.get(path, {}).get(method.lower(), {})
        internal = path.startswith("/internal/") and roles == OPEN
        who = "who has the token of the thing it is about" if internal else ", ".join(sorted(roles))
        rows.append((code(route), who, operation.get("summary", "")))
    return (
        "# HTTP routes\n\n"
        "The whole document, with bodies, answers and examples, is at `/openapi.json` of a running control plane."
        " What an analyst reaches is only their own work, on every route.\n\n"
        + table(("route", "who may", "does"), rows)
    )


def _place(line: tuple[str, Collection[str]]) -> tuple[int, str, int]:
    """Where a route is listed: what is open, the dashboard, the workers' API, the public API; in each by its path."""
    from paddock.api.access import OPEN

    route, roles = line
    method, path = route.split(" ", 1)
    if path.startswith("/internal/"):
        part = 2
    elif roles == OPEN:
        part = 0
    else:
        part = 3 if path.startswith(("/api/", "/export/")) else 1
    return part, path, ("GET", "POST", "PUT", "PATCH", "DELETE").index(method)


NAMED = {"dump:name": "dump:NAME", "maintenance:catalog": "maintenance:CATALOG", "tables:catalog": "tables:CATALOG"}


def _every_kind() -> "Kinds":
    """With those that an installation has for each of the databases and catalogs that it configures."""
    from paddock.config import Config
    from paddock.dumps.settings import DumpSettings
    from paddock.known_kinds import all_kinds
    from paddock.maintenance.settings import MaintenanceSettings

    return all_kinds(
        Config().with_settings(
            DumpSettings(databases={"name": {"type": "postgres", "url": "postgresql://db.example.com/name"}}),
            MaintenanceSettings(catalogs={"catalog": {"type": "rest"}}),
        )
    )


def kinds() -> str:
    about = (
        "# Built-in kinds\n\nWhat a kind declares and what each word means is in [extending](../extending.md)."
        " `GET /api/kinds` lists all kinds of an installation, other packages' too.\n"
    )
    parts = [about]
    shown: dict[type, str] = {}
    for kind in _every_kind():
        name = NAMED.get(kind.name, kind.name)
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
        parts.append(f"## {name}\n\n{_about(kind.handler)}{table(('', ''), facts.items())}")
        if kind.payload in shown:
            parts.append(f"Its payload is that of {shown[kind.payload]}.\n")
        elif kind.payload.model_fields:
            shown[kind.payload] = name
            parts.append(table(("payload", "type", ""), _fields(kind.payload)))
    return "\n".join(parts)


def _fields(payload: Any) -> Iterable[tuple[str, str, str]]:
    from paddock.capability import grants
    from paddock.jobs.bulk import Rights

    if issubclass(payload, Rights):
        for grant in grants():
            yield code(grant.name), code("list[str] | None"), ""
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
    """The first paragraph of the handler's own words, or of its module's."""
    text = inspect.getdoc(handler) or inspect.getdoc(inspect.getmodule(handler)) or ""
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
    from paddock.declared_arrow import SCALARS
    from paddock.engines.children import duckdb_types, sqlite_types
    from paddock.engines.postgres import types as postgres_types
    from paddock.engines.trino import types as trino_types

    declared = [
        _declared(name, graph)
        for name, graph in (
            *((name, "") for name in SCALARS),
            ("DECIMAL(10,2)", "p up to 38"),
            ("LIST(INT64)", "a DECIMAL inside is refused"),
            ("MAP(STRING, INT64)", "a DECIMAL inside is refused"),
            ("STRUCT(a INT64)", ""),
        )
    ]
    duckdb = [
        (
            code(name.upper()),
            code(str(rule.arrow)) if rule.arrow is not None else "refused",
            rule.refused or "; ".join(filter(None, (f"cast to {rule.cast} by DuckDB" if rule.cast else "", rule.note))),
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
        + table(("declared", "in the file", "in a graph", "in JSON from a graph", "in Arrow from a graph"), declared)
        + "\nThe values are examples. In JSON NaN and Infinity are text. What a graph answers besides: the sum of integers is an INT128, in JSON a number and in Arrow `decimal128(38, 0)`"
        " with `paddock: integer` in its field; nodes, relationships and paths are objects in JSON, and that JSON as a string in"
        " Arrow with `paddock: json` in its field.\n"
        "\n## DuckDB\n\n"
        "DuckDB itself reads a DECIMAL of more than 38 digits in a Parquet file as DOUBLE: rounded to about 16 digits, and"
        " for some precisions (seen with DuckDB 1.5.6) as another number altogether. Arrow reads it exactly. Where DuckDB"
        " is to read an export of PostgreSQL, cast such a column to `numeric(38,s)` or to `text` in the query.\n\n"
        + table(("DuckDB", "in the file", ""), duckdb)
        + "\n## Trino and Starburst\n\n"
        + table(("Trino", "Arrow, by example", "Parquet", ""), trino)
        + "\n## PostgreSQL\n\n"
        + table(("PostgreSQL", "Arrow", "Parquet", ""), postgres)
        + "\n## SQLite\n\n"
        "By the column's declared type; an expression needs a CAST. A value of another kind than declared fails and"
        " names its row.\n\n" + table(("declared", "in the file"), sqlite)
    )


# One value of each declared type, to show what JSON makes of it.
VALUES: Mapping[str, Any] = {
    "STRING": "Zürich",
    "FLOAT": 0.1,
    "DOUBLE": 0.1,
    "BOOL": True,
    "DATE": date(2024, 2, 29),
    "TIMESTAMP": datetime(2024, 2, 29, 12, 0, 0, 1),  # noqa: DTZ001  a TIMESTAMP has no zone
    "UUID": UUID(int=1),
    "BLOB": b"\x00\xff",
    "DECIMAL(10,2)": Decimal("12.30"),
    "LIST(INT64)": [1, 2],
    "MAP(STRING, INT64)": {"a": 1},
    "STRUCT(a INT64)": {"a": 1},
}


def _declared(name: str, note: str) -> tuple[str, ...]:
    """What one declared type is in a snapshot's file, in a graph, and in what a graph answers."""
    from paddock.declared_arrow import arrow_of
    from paddock.declared_types import parse
    from paddock.graphs.children import arrow_answers
    from paddock.graphs.children.tables import engine_type
    from paddock.graphs.children.values import Converters, encode

    type = parse(name)
    value = VALUES.get(name, 1)
    convert = Converters({}).of(type)
    json = encode(value if convert is None else convert(value)).decode()
    in_graph = code(engine_type(type)) + (f"; {note}" if note else "")
    return code(name), code(str(arrow_of(type))), in_graph, code(json), code(str(arrow_answers.arrow_of(type)))


def events() -> str:
    from paddock.jobs.events import event_types

    rows = ((code(type), says) for type, says in event_types(_every_kind()).items())
    return (
        "# Event types\n\nWhat a [webhook](../operating.md#webhooks) may be told of. Those of dumps are there where a database is"
        " configured to be dumped, those of maintenance where a catalog is; kinds of other packages may declare more. `paddock events types` lists those of an"
        " installation. A webhook may also name a family, like `job.*`, or all: `*`.\n\n"
        + table(("type", "says"), rows)
    )


def cluster_failures() -> str:
    from paddock.runtimes.kubernetes import failures
    from paddock.runtimes.kubernetes.categories import RULES

    reasons: dict[str, list[str]] = {category: [] for category in RULES}
    for status, category in failures.OF_STATUS.items():
        reasons[category].append(str(status))
    for table_of_reasons in (
        *(failures.OF_DISRUPTION, failures.OF_POD, failures.OF_WAITING),
        *(failures.OF_ENDED, failures.OF_EVENT),
    ):
        for reason, category in table_of_reasons.items():
            reasons[category].append(reason)
    for text, category in failures.TEXTS:
        reasons[category].append(text)
    rows = [
        (
            code(category),
            rule.message.format(object="*pod*", container="*container*", exit_code="*code*", meaning="", fields=""),
            rule.hint,
            _verdict(rule),
            ", ".join(map(code, dict.fromkeys(reasons[category]))) or "-",
        )
        for category, rule in RULES.items()
    ]
    return (
        "# Failures on a cluster\n\nWhat each category means is in [cluster trouble](../cluster-trouble.md). A category is stable;"
        " it is the `code` of errors of jobs, stands in the `diagnosis` of instances, and labels"
        " `paddock_kubernetes_failures_total`. Signals are HTTP statuses, reasons and texts of Kubernetes, as far as they"
        " decide alone.\n\n" + table(("category", "people read", "and are told to", "it is", "by"), rows)
    )


def _verdict(rule: Any) -> str:
    who = {"you": "whoever asked", "operator": "the operator", "paddock": "Paddock"}[rule.mended_by]
    again = {"transient": "tried again", "larger": "tried again with twice the memory", "permanent": ""}[rule.verdict]
    if rule.times is not None:
        again += f" {'once' if rule.times == 1 else f'{rule.times} times'}"
    ends = rule.verdict != "transient" or rule.times is not None
    told = ", then ".join(filter(None, (again, f"final, for {who} to mend" if ends else "")))
    waits = {
        None: "",
        "schedule": "without a node in time: ",
        "start": "not started in time: ",
        "settle": "after a minute: ",
    }
    return waits[rule.clock] + told


PAGES: Mapping[str, Callable[[], str]] = {
    "settings.md": configuration,
    "metrics.md": metrics,
    "commands.md": commands,
    "routes.md": routes,
    "kinds.md": kinds,
    "events.md": events,
    "cluster-failures.md": cluster_failures,
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
