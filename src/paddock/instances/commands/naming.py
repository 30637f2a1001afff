"""Instances by their names or ids."""

from typing import Annotated

from cyclopts import Parameter

from paddock.cli.connection import Server

Name = Annotated[str, Parameter(help="Its name or id.")]


def id_of(server: Server, instance: str, status: str | None = None) -> str:
    """Where several have the name: the one in this `status`, if one is named."""
    from paddock.client.naming import id_of

    return server.ask(lambda client: id_of(client, "instance", instance, status=status))


def path_of(server: Server, instance: str, status: str | None = None) -> str:
    return f"/api/instances/{id_of(server, instance, status)}"
