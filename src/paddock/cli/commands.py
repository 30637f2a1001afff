"""What there is to say to `paddock`, where each command lives, and the page that lists them."""

from typing import NamedTuple


class Command(NamedTuple):
    name: str
    target: str  # imported when the command is used
    help: str
    verbs: str = ""
    # Also a command without a verb; how its arguments are called then.
    alone: str = ""


class Section(NamedTuple):
    title: str
    commands: tuple[Command, ...]


SECTIONS: tuple[Section, ...] = (
    Section(
        "Run Paddock",
        (
            Command("up", "paddock.cli.processes:up", "Everything on this machine, in one data folder."),
            Command("serve", "paddock.cli.processes:serve", "The control plane alone, on your PostgreSQL."),
            Command("worker", "paddock.cli.processes:worker", "A worker for a control plane elsewhere."),
            Command("demo", "paddock.cli.demo:demo", "Watch a worker be killed and its work end exactly once."),
        ),
    ),
    Section(
        "Exports",
        (
            Command("export", "paddock.cli.export:export", "SQL to Parquet, CSV or JSON Lines, on your disk."),
            Command(
                "exports", "paddock.cli.exports:app", "The files made so far.", "list show watch download cancel rm"
            ),
            Command(
                "engines", "paddock.cli.engines:app", "What runs the queries.", "list check browse describe preview"
            ),
            Command(
                "mappings",
                "paddock.cli.mappings:app",
                "Which query gives which nodes and edges.",
                "list show versions diff copy delete validate apply",
            ),
            Command(
                "snapshots",
                "paddock.cli.snapshots:app",
                "The files of a mapping, made together.",
                "create list show retry cancel delete manifest",
            ),
        ),
    ),
    Section(
        "Dumps",
        (
            Command("dump", "paddock.cli.dump:app", "A whole database as one file.", "verify", alone="DATABASE"),
            Command("dumps", "paddock.cli.dumps:app", "The dumps there are.", "list show watch download cancel rm"),
        ),
    ),
    Section(
        "Work",
        (
            Command(
                "jobs",
                "paddock.cli.jobs:app",
                "Submit, look at, cancel and retry jobs.",
                "list show watch submit cancel retry run-now logs timeline",
            ),
            Command("why", "paddock.cli.why:why", "What happened to a job, in words, and what to do."),
            Command(
                "schedules",
                "paddock.cli.schedules:app",
                "Jobs by interval or cron.",
                "list create run enable disable delete",
            ),
            Command("events", "paddock.cli.events:app", "Facts, and who was told.", "list deliveries redeliver"),
            Command("webhooks", "paddock.cli.webhooks:app", "Who is told of events.", "list create delete test"),
        ),
    ),
    Section(
        "Operate",
        (
            Command("doctor", "paddock.cli.doctor:doctor", "Check everything; each finding says what to do."),
            Command("stats", "paddock.cli.stats:stats", "How much ran and failed, and how long it waited, by kind."),
            Command("audit", "paddock.cli.audit:audit", "Who changed what."),
            Command("kinds", "paddock.cli.kinds:app", "What can run, and whether it may.", "list pause resume"),
            Command("workers", "paddock.cli.workers:app", "Who runs it.", "list quiet"),
            Command("drain", "paddock.cli.drain:app", "Refuse new work, or accept it again.", "on off"),
            Command("tokens", "paddock.cli.tokens:app", "Who may ask.", "list create revoke link bootstrap"),
            Command("config", "paddock.cli.config:app", "The effective settings and their sources.", "show"),
            Command("version", "paddock.cli.version:version", "The versions here and on the server."),
            Command("completion", "paddock.cli.completion:completion", "A completion script for your shell."),
        ),
    ),
)

ABOUT = "Paddock runs data jobs that must neither be lost nor run twice."
ENDING = """\
Every command has --help. Lists and answers take -o table|json|yaml|name.
The server is --server, PADDOCK_SERVER, or the running `paddock up` of ./paddock-data (--data DIR).
Exit codes: 0 fine, 1 failed, 2 wrong usage, 3 not found, 4 refused.
"""


def overview() -> str:
    lines = [ABOUT, "", "Usage: paddock COMMAND [OPTIONS]", ""]
    for section in SECTIONS:
        lines.append(section.title)
        for command in section.commands:
            lines.append(f"  {command.name:<11} {command.help}")
            if command.verbs:
                lines.append(f"  {'':<11}   {' · '.join([*command.alone.split(), *command.verbs.split()])}")
        lines.append("")
    return "\n".join(lines) + "\n" + ENDING
