"""`paddock tokens`: who may ask. A secret is shown once, when it is made."""

import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.errors import NOT_FOUND, CommandFailed, wrong_usage
from paddock.cli.output import Column, Form, Item, Output, dump, facts, field, show, show_one
from paddock.cli.wording import ago, duration, moment, now

if TYPE_CHECKING:
    from rich.console import RenderableType

app = App(name="tokens", help="Who has access, and to what.")

Role = Literal["worker", "analyst", "ops", "admin"]
Several = Annotated[list[str] | None, Parameter(negative=())]


@app.command
def create(
    *,
    role: Role,
    name: str,
    owner: str | None = None,
    kind: Several = None,
    engine_role: Several = None,
    engine: Several = None,
    destination: Several = None,
    database: Several = None,
    grant: Several = None,
    expires: str | None = None,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Create a token. Its secret is printed now and never again.

    Parameters
    ----------
    role:
        worker (claims jobs), analyst (own work), ops (everybody's work) or admin (tokens too).
    name:
        What it is for.
    owner:
        Whose work it makes; default: the name.
    kind:
        Worker: the kinds it may claim; default: all. Repeat for several.
    engine_role:
        Engine role it may use. Repeat for several.
    engine:
        Engine it may use. Repeat for several.
    destination:
        Destination it may write to. Repeat for several.
    database:
        Database it may dump. Repeat for several.
    grant:
        NAME=VALUE, for what another package lets tokens be given. Repeat for several.
    expires:
        After this long, or at this time: 30d, 2027-01-01T00:00Z.
    """
    body: dict[str, Any] = {
        "role": role,
        "name": name,
        "owner": owner,
        "kinds": kind,
        "expires_at": expiry(expires),
    }
    granted = {"engine_roles": engine_role, "engines": engine, "destinations": destination, "databases": database}
    for text in grant or ():
        named, _, value = text.partition("=")
        if not value or named in body:
            raise wrong_usage(f"'{text}' is no grant: write NAME=VALUE, as in engines=duckdb.")
        granted[named] = [*(granted.get(named) or ()), value]
    body |= granted
    made = open_server(connect).post("/api/tokens", {key: value for key, value in body.items() if value is not None})
    return _show_secret(made, output)


@app.command
def bootstrap(*, name: str = "admin", output: Output = "table") -> int:
    """Create the first admin token straight in the database (PADDOCK_DATABASE_URL), where no token exists to ask with.

    Parameters
    ----------
    name:
        What it is for.
    """
    import asyncio

    from paddock.config import load

    config = load()
    if config.database_url is None:
        raise wrong_usage(
            "This needs the database itself: set PADDOCK_DATABASE_URL.",
            "`paddock up` keeps its admin token in its data folder.",
        )
    return _show_secret(asyncio.run(_create_admin(config.database_url.get_secret_value(), name)), output)


async def _create_admin(dsn: str, name: str) -> dict[str, Any]:
    import asyncpg

    from paddock.api.tokens import Tokens, everything
    from paddock.db.migrate import MigrationError, migrate
    from paddock.db.pool import open_database
    from paddock.log import scrub

    try:
        await migrate(dsn)
        async with open_database(dsn, durable=1, relaxed=1) as db:
            shown, secret = await Tokens(db).create(everything(name, "admin"), actor="paddock tokens bootstrap")
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, MigrationError) as problem:
        raise CommandFailed(scrub(f"The database refused: {problem}.")) from None
    return {"token": secret, **{key: shown[key] for key in ("name", "role", "owner")}, "id": str(shown["id"])}


def _show_secret(made: dict[str, Any], output: Form) -> int:
    if output in ("json", "yaml"):
        dump({"token": made["token"], **{key: value for key, value in made.items() if key != "token"}}, output)
        return 0
    sys.stdout.write(f"{made['token']}\n")
    if sys.stdout.isatty():
        told = f"A token of role {made['role']} for {made['owner']}. Keep it: it is not shown again."
        sys.stderr.write(f"{told}\n")
    return 0


@app.command(name="list")
def list_tokens(*, output: Output = "table", connect: Connect = HERE) -> int:
    """List the tokens, without their secrets."""
    show(open_server(connect).pages("/api/tokens", None), COLUMNS, output, none="No tokens.")
    return 0


@app.command
def revoke(token: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Revoke a token: it stops working at once, and with it whoever signed in with it.

    Parameters
    ----------
    token:
        Its id, the beginning of its id, or its name.
    """
    server = open_server(connect)
    listed = [known for known in server.pages("/api/tokens", None) if not known.get("revoked_at")]
    found = [known for known in listed if known["name"] == token or str(known["id"]).startswith(token.lower())]
    if not found:
        raise CommandFailed(f"There is no token '{token}' that still works.", exit_code=NOT_FOUND)
    if len(found) > 1:
        raise wrong_usage(
            f"'{token}' means {len(found)} tokens: give an id.", "\n".join(str(known["id"]) for known in found)
        )
    server.delete(f"/api/tokens/{found[0]['id']}")
    show_one({**found[0], "revoked": True}, output, person=lambda known: f"{known['name']} is revoked.")
    return 0


@app.command
def link(*, output: Output = "table", connect: Connect = HERE) -> int:
    """Print a link that signs a browser in, once, within five minutes."""
    server = open_server(connect)
    made = sign_in_link(server.post("/api/tokens/self/sign-in-link", {}), server.url)
    show_one(made, output, name="url", person=lambda told: str(told["url"]))
    return 0


def sign_in_link(told: Any, server_url: str) -> dict[str, Any]:
    """The answer with an address that works from here."""
    url = str(told.get("url") or told.get("path") or "")
    return {**told, "url": url if "://" in url else f"{server_url}{url}"}


def expiry(value: str | None) -> str | None:
    if value is None:
        return None
    try:
        length: timedelta = duration(value)
    except ValueError:
        try:
            at = moment(value)
        except ValueError:
            raise wrong_usage(f"'{value}' is neither a time nor a duration: write 30d or 2027-01-01T00:00Z.") from None
        return at.isoformat() if at else None
    try:
        return (now() + length).isoformat()
    except OverflowError:
        raise wrong_usage(
            f"'{value}' is further ahead than any date: leave --expires out for a token without an end."
        ) from None


def state(token: Item) -> str:
    if token.get("revoked_at"):
        return "revoked"
    expires = moment(token.get("expires_at"))
    if expires is None:
        return "good"
    return "expired" if expires < now() else f"good, expires {ago(expires)}"


def sheet(token: Item) -> "RenderableType":
    return facts([(name.replace("_", " "), value) for name, value in token.items()])


COLUMNS: Sequence[Column] = (
    field("id"),
    field("name"),
    field("role"),
    field("owner"),
    Column("created", lambda token: ago(token.get("created_at"))),
    Column("last used", lambda token: ago(token.get("last_used_at"))),
    Column("state", state, wide=True),
)
