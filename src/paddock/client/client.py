"""The client of a server: jobs, mappings, snapshots and instances."""

from functools import cached_property
from pathlib import Path

import httpx2

from paddock.client.finding import find_server
from paddock.client.instances import Instances
from paddock.client.jobs import JobsClient
from paddock.client.mappings import Mappings
from paddock.client.snapshots import Snapshots

# So long a request is repeated that the server says may be repeated.
PATIENCE_SECONDS = 60.0


class Client(JobsClient):
    @cached_property
    def mappings(self) -> Mappings:
        return Mappings(self)

    @cached_property
    def snapshots(self) -> Snapshots:
        return Snapshots(self)

    @cached_property
    def instances(self) -> Instances:
        return Instances(self)


def connect(
    server: str | None = None,
    *,
    token: str | None = None,
    token_file: Path | str | None = None,
    data: Path | str | None = None,
    patience: float = PATIENCE_SECONDS,
    transport: httpx2.BaseTransport | None = None,
) -> Client:
    """Finds server and token as the command line does: what is named here, then PADDOCK_SERVER, PADDOCK_TOKEN and
    paddock.toml, then the running `paddock up` of ./paddock-data. `data` names the folder of another one."""
    found = find_server(server, None if token_file is None else Path(token_file), None if data is None else Path(data))
    return Client(found.url, token or found.token, patience=patience, transport=transport)
