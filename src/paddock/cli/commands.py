"""What there is to say to `paddock`, where each command lives, and the page that lists them."""

from collections.abc import Sequence
from typing import NamedTuple

from paddock.capability import Command, capabilities, leaving_out


class Section(NamedTuple):
    title: str
    commands: Sequence[Command]


RUNNING = (
    Section(
        "Run Paddock",
        (
            Command("up", "paddock.up.commands:up", "Everything on this machine, in one data folder."),
            Command("serve", "paddock.up.commands:serve", "The control plane alone, on your PostgreSQL."),
            Command("worker", "paddock.up.commands:worker", "A worker for a control plane elsewhere."),
            Command("instance", "paddock.up.commands:instance", "One graph database, as a runtime starts it."),
            Command("demo", "paddock.demo:demo", "Watch a worker be killed and its work end exactly once."),
        ),
    ),
)
WORKING = (
    Section(
        "Work",
        (
            Command(
                "jobs",
                "paddock.cli.jobs:app",
                "Submit, show, cancel and retry jobs.",
                "list show watch submit cancel retry run-now logs timeline",
            ),
            Command("why", "paddock.cli.why:why", "What happened to a job, in words, and what to do."),
            Command(
                "schedules",
                "paddock.cli.schedules:app",
                "Jobs by interval or cron.",
                "list create run enable disable delete",
            ),
            Command(
                "events",
                "paddock.cli.events:app",
                "What happened, and who was notified.",
                "list types deliveries redeliver",
            ),
            Command(
                "webhooks",
                "paddock.cli.webhooks:app",
                "Who is notified of events.",
                "list show create edit delete test",
            ),
        ),
    ),
    Section(
        "Operate",
        (
            Command("doctor", "paddock.cli.doctor:doctor", "Check everything; each finding says what to do."),
            Command("stats", "paddock.cli.stats:stats", "How much ran and failed, and how long it waited, by kind."),
            Command("audit", "paddock.cli.audit:audit", "Who changed what."),
            Command("kinds", "paddock.cli.kinds:app", "What can run, and whether it may.", "list pause resume"),
            Command("workers", "paddock.cli.workers:app", "What runs the jobs.", "list quiet"),
            Command("drain", "paddock.cli.drain:app", "Refuse new work, or accept it again.", "on off"),
            Command(
                "tokens", "paddock.cli.tokens:app", "Who has access, and to what.", "list create revoke link bootstrap"
            ),
            Command("config", "paddock.cli.config:app", "The effective settings and their sources.", "show"),
            Command("version", "paddock.cli.version:version", "The versions here and on the server."),
            Command("completion", "paddock.cli.completion:completion", "A completion script for your shell."),
        ),
    ),
)


def sections() -> list[Section]:
    """The capabilities' stand between running Paddock and the core's own work."""
    taken = {command.name for section in (*RUNNING, *WORKING) for command in section.commands}
    declared: list[Section] = []
    for capability in capabilities():
        names = {command.name for command in capability.commands}
        with leaving_out(capability):
            if names & taken:
                raise ValueError(f"there is a command '{min(names & taken)}' already")
            declared += [Section(capability.title, capability.commands)] if names else []
        taken |= names
    return [*RUNNING, *declared, *WORKING]


ABOUT = "Paddock runs data jobs that must neither be lost nor run twice."
ENDING = """\
Every command has --help. Lists and answers take -o table|json|yaml|name.
The server is --server, PADDOCK_SERVER, or the running `paddock up` of ./paddock-data (--data DIR).
Exit codes: 0 fine, 1 failed, 2 wrong usage, 3 not found, 4 refused.
"""


def overview() -> str:
    lines = [ABOUT, "", "Usage: paddock COMMAND [OPTIONS]", ""]
    for section in sections():
        lines.append(section.title)
        for command in section.commands:
            lines.append(f"  {command.name:<11} {command.help}")
            if command.verbs:
                lines.append(f"  {'':<11}   {' · '.join([*command.alone.split(), *command.verbs.split()])}")
        lines.append("")
    return "\n".join(lines) + "\n" + ENDING
