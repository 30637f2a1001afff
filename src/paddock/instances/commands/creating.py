"""`paddock instances create` and `reopen`."""

from typing import Literal

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.errors import wrong_usage
from paddock.cli.output import Output, Watch
from paddock.exports.commands.export import Engine, Role
from paddock.instances.commands.naming import Name, path_of
from paddock.instances.commands.watching import show_instance


def create(
    mapping: str | None = None,
    /,
    *,
    snapshot: str | None = None,
    version: int | None = None,
    name: str | None = None,
    description: str | None = None,
    wrapper_type: Literal["ladybug", "ryugraph"] | None = None,
    engine: Engine = None,
    role: Role = None,
    catalog: str | None = None,
    schema: str | None = None,
    ttl: str | None = None,
    inactivity_timeout: str | None = None,
    cpu_cores: int | None = None,
    memory_gb: int | None = None,
    watch: Watch = False,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Create a graph from a mapping, whose queries run first, or from a snapshot that is ready.

    Parameters
    ----------
    mapping:
        The mapping's name or id.
    snapshot:
        A snapshot's id or name instead.
    version:
        The mapping's version. Default: the newest.
    name:
        What to call it. Default: the mapping's name; of a snapshot with its version.
    wrapper_type:
        The graph engine. ryugraph is experimental, and loads FLOAT and DOUBLE 25 to 90 times slower than ladybug.
    engine:
        Which engine runs the mapping's queries; needed where there are several.
    catalog:
        The catalog that the queries mean, where the engine has some.
    schema:
        The schema that the queries mean, where the engine has some.
    ttl:
        It is gone so long after it began to run: 12h, 2d, PT36H.
    inactivity_timeout:
        It is gone so long after the last query: 4h.
    cpu_cores:
        1 to 8.
    memory_gb:
        1 to 32. Default: what the snapshot needs.
    """
    if (mapping is None) == (snapshot is None):
        raise wrong_usage("Give either a mapping or --snapshot.", "`paddock mappings list` names the mappings.")
    server = open_server(connect)
    made = server.ask(
        lambda client: client.instances.create(
            mapping,
            snapshot=snapshot,
            version=version,
            name=name,
            description=description,
            wrapper_type=wrapper_type,
            engine=engine,
            role=role,
            catalog=catalog,
            schema=schema,
            ttl=ttl,
            inactivity_timeout=inactivity_timeout,
            cpu_cores=cpu_cores,
            memory_gb=memory_gb,
        )
    )
    return show_instance(server, made, watch, output, connect)


def reopen(instance: Name, /, *, watch: Watch = False, output: Output = "table", connect: Connect = HERE) -> int:
    """Start an instance that failed, or runs, once more: from its loaded database where that is kept, else from its
    snapshot."""
    server = open_server(connect)
    again = server.make_work(f"{path_of(server, instance)}/reopen", None)
    return show_instance(server, again, watch, output, connect)
