"""The database it uses, migrated and with tokens for the person and the worker."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.stopping import cancel
from paddock.up.folder import read, write_private

if TYPE_CHECKING:
    from paddock.config import Config

log = logging.getLogger(__name__)


@asynccontextmanager
async def database(config: "Config", data: Path, pg_bin: Path | None, stop: asyncio.Event) -> AsyncIterator[str]:
    """The one that is configured, or an embedded one, which is started again if it dies."""
    if config.database_url is not None:
        yield config.database_url.get_secret_value()
        return
    from paddock.db.embedded import embedded_postgres

    async with contextlib.AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(embedded_postgres(data, pg_bin=pg_bin))
        dsn = postgres.dsn

        async def keep() -> None:
            nonlocal postgres
            while True:
                await postgres.died.wait()
                log.error("PostgreSQL ended by itself (see %s): starting it again.", data / "postgres.log")
                await stack.aclose()
                postgres = await stack.enter_async_context(embedded_postgres(data, pg_bin=pg_bin))
                if postgres.dsn != dsn:
                    log.error("PostgreSQL has another address now, which the control plane does not know: stopping.")
                    stop.set()
                    return

        keeper = asyncio.create_task(keep(), name="keep postgres")
        try:
            yield dsn
        finally:
            await cancel(keeper)


async def prepare(dsn: str, data: Path) -> dict[str, str]:
    """A migrated database, and a token for the person and one for the worker that it accepts."""
    from paddock.api.tokens import Tokens, everything, new_secret
    from paddock.db.migrate import migrate
    from paddock.db.pool import open_database

    await migrate(dsn)
    secrets = {}
    async with open_database(dsn, durable=1, relaxed=1) as db:
        tokens = Tokens(db)
        for role, name in (("admin", "admin"), ("worker", "local worker")):
            file = data / f"{role}.token"
            secret = read(file) or new_secret()
            if not await tokens.keep(everything(name, role), secret, actor="paddock up"):  # type: ignore[arg-type]
                secret = new_secret()
                await tokens.create(everything(name, role), actor="paddock up", secret=secret)  # type: ignore[arg-type]
            write_private(file, secret + "\n")
            secrets[role] = secret
    return secrets
