"""`paddock jobs cancel`, `retry` and `run-now`: jobs that are named. All that match a filter: `bulk`."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any

from cyclopts import Parameter

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.errors import CommandFailed, wrong_usage
from paddock.cli.jobs.bulk import ASK, Action, How, act_on_all
from paddock.cli.jobs.filtering import ANY, Which
from paddock.cli.jobs.naming import IDS_HELP, Ids, whole_id
from paddock.cli.jobs.showing import show_made
from paddock.cli.output import Form, Output

NamedOrNot = Annotated[list[str] | None, Parameter(help=f"{IDS_HELP} Or give a filter.", negative=())]
Reason = Annotated[str | None, Parameter(help="Why: kept in the job's timeline and the audit log.")]


def cancel(
    ids: NamedOrNot = None,
    /,
    *,
    reason: Reason = None,
    output: Output = "table",
    which: Which = ANY,
    how: How = ASK,
    connect: Connect = HERE,
) -> int:
    """Cancel jobs by id, or all that match a filter. A named one that has ended already is refused (exit 4)."""
    return _named_or_all("cancel", ids, which, how, reason, output, connect)


def retry(
    ids: NamedOrNot = None,
    /,
    *,
    reason: Reason = None,
    output: Output = "table",
    which: Which = ANY,
    how: How = ASK,
    connect: Connect = HERE,
) -> int:
    """Retry ended jobs, each as a new job with the same kind and payload: by id, or all that match a filter."""
    return _named_or_all("retry", ids, which, how, reason, output, connect)


def run_now(ids: Ids, /, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Make jobs due that wait in backoff or for their time."""
    return _each(connect, ids, "run-now", {}, output)


def _named_or_all(
    action: Action, ids: list[str] | None, which: Which, how: How, reason: str | None, output: Form, connect: Connect
) -> int:
    if not ids:
        return act_on_all(action, which, how, reason, output, connect)
    if which != ANY:
        raise wrong_usage(f"Name the jobs to {action}, or give a filter; not both.")
    if replace(how, yes=False) != ASK:
        raise wrong_usage("--all, --dry-run and --wait go with a filter, not with ids.")
    return _each(connect, ids, action, {"reason": reason}, output)


def _each(connect: Connect, ids: Iterable[str], action: str, body: dict[str, Any], output: Form) -> int:
    """Every job is tried; the worst answer is the exit code."""
    from paddock.cli.app import tell

    server = open_server(connect)
    done, worst = [], 0
    body = {name: value for name, value in body.items() if value is not None}
    for id in ids:
        try:
            path = f"/api/jobs/{whole_id(server, id)}/{action}"
            done.append(server.make_work(path, body) if action == "retry" else server.post(path, body))
        except CommandFailed as failed:
            tell(f"{id}: {failed.message}", failed.hint)
            worst = max(worst, failed.exit_code)
    show_made(done, output)
    return worst
