"""Cancelling and retrying all jobs that match: counted, asked about, then done by a job of its own."""

import sys
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from paddock.amounts import number
from paddock.cli.connection import Connect, Refusal, Server, open_server
from paddock.cli.errors import FAILED, REFUSED, CommandFailed, wrong_usage
from paddock.cli.jobs.filtering import ANY, Which, in_words
from paddock.cli.jobs.showing import show_made
from paddock.cli.jobs.watching import follow
from paddock.cli.output import Form, Item, dump, is_terminal

Action = Literal["cancel", "retry"]


@Parameter(name="*", group=Group("All that match", sort_key=6))
@dataclass(frozen=True)
class How:
    """What to do with a filter's matches before, while and after acting on them."""

    all: Annotated[bool, Parameter(negative=(), help="Even if nothing but time narrows the filter.")] = False
    dry_run: Annotated[bool, Parameter(negative=(), help="Only say how many match.")] = False
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative=(), help="Do not ask.")] = False
    wait: Annotated[bool | None, Parameter(help="Follow it to its end; default on a terminal.")] = None


ASK = How()


@dataclass(frozen=True)
class Words:
    done: str
    # What the server narrows every filter of this action to.
    possible: str
    fate: str
    skipped: str


WORDS: dict[Action, Words] = {
    "cancel": Words("cancelled", "live", "Each will be cancelled, running or not.", "ended in the meantime"),
    "retry": Words(
        "retried",
        "failed or cancelled",
        "Each will be run again as a new job, unless it was retried before.",
        "retried already",
    ),
}


def act_on_all(action: Action, which: Which, how: How, reason: str | None, output: Form, connect: Connect) -> int:
    if which == ANY and not how.all:
        raise wrong_usage(
            f"Which jobs? Name them, or give a filter, like --kind or --tag; --all would {action} every job.",
            "`paddock jobs cancel --help` and `paddock jobs retry --help` list the filters.",
        )
    body: dict[str, Any] = {"filter": which.as_parameters(), "all": how.all}
    if reason is not None:
        body["reason"] = reason
    server = open_server(connect)
    counted = _count(server, action, body)
    if how.dry_run or counted["count"] == 0:
        _show_count(action, counted, body, output)
        return 0
    if not how.yes:
        _ask(action, counted, body)
    job = server.make_work(f"/api/jobs/{action}", body)
    return _see_through(server, action, job, how, output)


def _count(server: Server, action: Action, body: Item) -> Item:
    try:
        counted: Item = server.post(f"/api/jobs/{action}", {**body, "dry_run": True})
        return counted
    except Refusal as refusal:
        if refusal.code != "empty_filter":
            raise
        raise wrong_usage(
            f"Nothing but time narrows this filter: it would {action} every job of that time.",
            "Narrow it further, or say --all if you mean it.",
        ) from None


def _show_count(action: Action, counted: Item, body: Item, output: Form) -> None:
    if output in ("json", "yaml"):
        dump(counted, output)
    elif output == "table":
        sys.stdout.write(_plan(action, counted, body) + "\n")


def _plan(action: Action, counted: Item, body: Item) -> str:
    words, filter = WORDS[action], in_words(body["filter"]) or "no filter"
    count = counted["count"]
    if count == 0:
        return f"No {words.possible} job matches ({filter}): there is nothing to {action}."
    if count == "0+":
        return f"Whether any {words.possible} job matches ({filter}) takes too long to count. {words.fate}"
    shown = number(count) if isinstance(count, int) else f"At least {str(count).removesuffix('+')}"
    match = "job matches" if count == 1 else "jobs match"
    return f"{shown} {words.possible} {match} ({filter}). {words.fate}"


def _ask(action: Action, counted: Item, body: Item) -> None:
    plan = _plan(action, counted, body)
    if not (is_terminal() and sys.stdin.isatty()):
        raise wrong_usage(plan, "Nothing was done, because there is no terminal to ask on: --yes skips the question.")
    sys.stderr.write(f"{plan}\nGo on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed(f"Nothing was {WORDS[action].done}.", exit_code=FAILED)


def _see_through(server: Server, action: Action, job: Item, how: How, output: Form) -> int:
    wait = is_terminal() if how.wait is None else how.wait
    if not wait:
        show_made([job], output)
        return 0
    [ended] = follow(server, [job["id"]], output)
    if ended["status"] != "completed":
        return FAILED
    if output == "table":
        sys.stdout.write(summary(action, ended["result"]) + "\n")
    return REFUSED if ended["result"]["refused"] else 0


def summary(action: Action, result: Item) -> str:
    words = WORDS[action]
    parts = [f"{number(result['done'])} {words.done}"]
    if result["skipped"]:
        parts.append(f"{number(result['skipped'])} skipped ({words.skipped})")
    parts += [f"{number(count)} refused [{code}]" for code, count in result["refused"].items()]
    return "; ".join(parts) + "."
