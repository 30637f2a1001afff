"""`paddock mappings`: which query gives which nodes and edges, version by version."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.errors import FAILED, USAGE, CommandFailed, wrong_usage
from paddock.cli.output import Form, Item, Output, dump, show, show_one
from paddock.cli.wording import duration
from paddock.exports.commands.export import Engine, Role
from paddock.exports.commands.mapping_words import COLUMNS, VERSIONS, changed_lines, sheet, verdicts

if TYPE_CHECKING:
    from paddock.exports.mapping import Definition

app = App(name="mappings", help="Which query gives which nodes and edges.")

File = Annotated[
    Path,
    Parameter(name=["--file", "-f"], allow_leading_hyphen=True, help="A mapping file (YAML); - is standard input."),
]
Version = Annotated[int | None, Parameter(help="Default: the newest.")]


@app.command(name="list")
def list_mappings(
    *,
    q: str | None = None,
    owner: str | None = None,
    limit: int = 100,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """List mappings, newest first.

    Parameters
    ----------
    q:
        Only those with this in their name or description.
    owner:
        Only theirs.
    limit:
        How many at most.
    """
    show(open_server(connect).pages("/api/mappings", limit, q=q, owner=owner), COLUMNS, output, none="No mappings.")
    return 0


@app.command(name="show")
def show_mapping(mapping: str, /, *, version: Version = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Show a mapping; with -o yaml as the file that says it.

    Parameters
    ----------
    mapping:
        Its name or id.
    """
    server = open_server(connect)
    path = _path(server, mapping)
    _tell(server.get(path if version is None else f"{path}/versions/{version}"), output)
    return 0


@app.command
def versions(mapping: str, /, *, output: Output = "table", connect: Connect = HERE) -> int:
    """List the versions of a mapping, newest first.

    Parameters
    ----------
    mapping:
        Its name or id.
    """
    server = open_server(connect)
    found = server.pages(f"{_path(server, mapping)}/versions", None)
    show(found, VERSIONS, output, name="version", none="No versions.")
    return 0


@app.command
def diff(
    mapping: str,
    /,
    *,
    before: Annotated[int | None, Parameter(name="--from", help="Default: the version before --to.")] = None,
    after: Annotated[int | None, Parameter(name="--to", help="Default: the newest.")] = None,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Show what changed between two versions.

    Parameters
    ----------
    mapping:
        Its name or id.
    """
    server = open_server(connect)
    found = server.get(f"{_path(server, mapping)}/diff", **{"from": before, "to": after})
    if output in ("json", "yaml"):
        dump(found, output)
    else:
        lines = list(changed_lines(found))
        sys.stdout.write("".join(f"{line}\n" for line in lines or ["No difference."]))
    return 0


@app.command
def copy(
    mapping: str, name: str, /, *, version: Version = None, output: Output = "table", connect: Connect = HERE
) -> int:
    """Copy a version of a mapping into a mapping of your own.

    Parameters
    ----------
    mapping:
        Its name or id.
    name:
        The copy's name.
    """
    server = open_server(connect)
    body = {"name": name} | ({} if version is None else {"version": version})
    _tell(server.make_work(f"{_path(server, mapping)}/copy", body), output)
    return 0


@app.command
def delete(mapping: str, /, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Delete a mapping with all its versions; refused while there are snapshots of it.

    Parameters
    ----------
    mapping:
        Its name or id.
    """
    server = open_server(connect)
    gone = server.delete(_path(server, mapping))
    show_one(gone, output, person=lambda one: f"{one['name']} is deleted.")
    return 0


@app.command
def validate(
    mapping: str | None = None,
    /,
    *,
    file: Annotated[Path | None, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)] = None,
    version: Version = None,
    engine: Engine = None,
    role: Role = None,
    catalog: str | None = None,
    schema: str | None = None,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Ask the engine whether the queries give the columns that are declared. Exits 1 unless all do.

    Position counts: a query that lists declared columns in another order is an error, any other name is a warning.

    Parameters
    ----------
    mapping:
        Its name or id.
    file:
        A mapping file (YAML) instead; nothing is saved.
    engine:
        Which engine; needed where there are several.
    catalog:
        Catalog of the queries' unqualified names, where the engine has catalogs.
    schema:
        Schema of the queries' unqualified names, where the engine has schemas.
    """
    if (mapping is None) == (file is None):
        raise wrong_usage("Give either a mapping or --file.")
    asked = {"engine": engine, "catalog": catalog, "schema": schema, "version": version}
    body = {name: value for name, value in asked.items() if value is not None}
    server = open_server(connect)
    if file is not None:
        body |= _definition(_read(file)).dumped()
        path = "/api/mappings/validate"
    else:
        path = f"{_path(server, str(mapping))}/validate"
    answer = server.answer("POST", path, body=body, role=role, timeout=60)["data"]
    if output in ("json", "yaml"):
        dump(answer, output)
    else:
        sys.stdout.write("".join(f"{line}\n" for line in verdicts(answer)))
    return 0 if answer["valid"] else FAILED


@app.command
def apply(
    *,
    file: File,
    message: Annotated[str | None, Parameter(name=["--message", "-m"])] = None,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Create the mapping of a file, or a new version of it if the file differs.

    Parameters
    ----------
    message:
        What changed, for whoever reads the versions; needed for a new version.
    """
    content = _read(file)
    definition = _definition(content)
    server = open_server(connect)
    owner = server.get("/api/tokens/self")["owner"]
    found = list(server.pages("/api/mappings", 1, name=content.get("name"), owner=owner)) if content.get("name") else []
    wanted = {"description": "", "ttl": None, **content, **definition.dumped()}
    if not found:
        return _applied(server.make_work("/api/mappings", wanted), "created", output)
    now = server.get(f"/api/mappings/{found[0]['id']}")
    if _same(now, wanted):
        return _applied(now, "unchanged", output)
    if message is None:
        raise wrong_usage(f"'{now['name']}' is different from the file: say what changed, with --message.")
    body = {**wanted, "change_description": message, "based_on": now["latest"]}
    return _applied(server.make_work(f"/api/mappings/{now['id']}/versions", body), "changed", output)


def _applied(mapping: Item, what: str, output: Form) -> int:
    show_one(mapping, output, person=lambda one: f"{one['name']}  version {one['version']}  {what}  {one['id']}")
    return 0


def _same(now: Item, wanted: Item) -> bool:
    same = all(now[name] == wanted[name] for name in ("name", "description", "nodes", "edges"))
    return same and _seconds(now["ttl"]) == _seconds(wanted["ttl"])


def _seconds(ttl: str | None) -> float | None:
    """The same time may be written in many ways."""
    try:
        return None if ttl is None else duration(ttl).total_seconds()
    except ValueError as problem:
        raise wrong_usage(f"ttl: {problem}") from None


def _read(file: Path) -> dict[str, Any]:
    from paddock.exports.yaml_form import BadFile, read

    try:
        return read(sys.stdin.read() if str(file) == "-" else file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise wrong_usage(f"{file} cannot be read: {problem}.") from None
    except BadFile as bad:
        raise wrong_usage(f"{file}: {bad}") from None


def _definition(content: Item) -> "Definition":
    """Checked here, so that a file's mistakes are all told before anything is asked."""
    from pydantic import ValidationError

    from paddock.exports.mapping import Definition, InvalidDefinition, checked
    from paddock.field_errors import field_errors

    try:
        return checked(
            Definition.model_validate({name: content[name] for name in ("nodes", "edges") if name in content})
        )
    except ValidationError as invalid:
        found = [(error.field, error.sentence) for error in field_errors(invalid)]
    except InvalidDefinition as refused:
        fields: Any = refused.details["fields"]
        found = [(problem["field"], problem["message"]) for problem in fields]
    told = "\n".join(f"  {name}: {message}" for name, message in found)
    raise CommandFailed(f"The mapping is not valid:\n{told}", exit_code=USAGE)


def find(server: Server, noun: str, name: str) -> str:
    """The id of what somebody names by its id or name."""
    from paddock.client.naming import id_of

    return server.ask(lambda client: id_of(client, noun, name))


def _path(server: Server, mapping: str) -> str:
    return f"/api/mappings/{find(server, 'mapping', mapping)}"


def _tell(mapping: Item, output: Form) -> None:
    if output == "yaml":
        from paddock.exports.yaml_form import write

        sys.stdout.write(write(mapping))
    else:
        show_one(mapping, output, person=sheet)
