"""`paddock instances extend`, `share` and `delete`."""

from typing import Annotated
from urllib.parse import quote

from cyclopts import Parameter

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.errors import wrong_usage
from paddock.cli.output import Column, Output, field, show, show_one
from paddock.cli.wording import ago, duration
from paddock.instances.commands.naming import Name, id_of, path_of
from paddock.instances.commands.words import harmless

# A delete is answered when the instance is gone, at the latest after 45 s.
DELETE_SECONDS = 75.0


def extend(instance: Name, by: str = "24h", /, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Let an instance live longer than it would have.

    Parameters
    ----------
    by:
        So much longer: 12h, 2d.
    """
    try:
        more = duration(by)
    except ValueError as problem:
        raise wrong_usage(str(problem)) from None
    server = open_server(connect)
    id = id_of(server, instance)
    extended = server.ask(lambda client: client.instances.extend_ttl(id, more))
    show_one(extended, output, person=lambda one: f"{harmless(one['name'])} expires {ago(one['expires_at'])}.")
    return 0


def share(
    instance: Name,
    owner: str | None = None,
    /,
    *,
    revoke: Annotated[bool, Parameter(negative=())] = False,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Let somebody else read and query an instance, or list those who may.

    Parameters
    ----------
    owner:
        Who: the owner name of their token.
    revoke:
        They may no longer.
    """
    if revoke and owner is None:
        raise wrong_usage("Say from whom to take it: paddock instances share INSTANCE OWNER --revoke")
    server = open_server(connect)
    path = path_of(server, instance)
    if owner is not None:
        server.answer("DELETE" if revoke else "PUT", f"{path}/grants/{quote(owner, safe='')}")
    show(server.get(f"{path}/grants"), GRANTS, output, name="owner", none="It is shared with nobody.")
    return 0


def delete(instance: Name, /, *, reason: str | None = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Delete an instance: its process, its files, then its row. The snapshot stays.

    Parameters
    ----------
    reason:
        Why; whoever looks for it later reads it.
    """
    server = open_server(connect)
    path, parameters = path_of(server, instance), {} if reason is None else {"reason": reason}
    gone = server.answer("DELETE", path, parameters=parameters, timeout=DELETE_SECONDS)["data"]
    how = "being deleted" if gone.get("status") == "stopping" else "deleted"
    show_one(gone, output, person=lambda _: f"{harmless(instance)} is {how}.")
    return 0


GRANTS = (field("owner"), field("granted_by", "shared by"), Column("since", lambda one: ago(one["granted_at"])))
