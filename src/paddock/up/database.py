"""The database it uses, migrated and with tokens for the person and the worker."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.stopping import cancel
from paddock.up.errors import UpError
from paddock.up.folder import read, write_private

if TYPE_CHECKING:
    from paddock.config import Config

# A server that lived this long is started again at once; one that did not, after a pause that grows.
SETTLED = timedelta(seconds=10)
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0

log = logging.getLogger(__name__)


@asynccontextmanager
async def database(
    config: "Config", data: Path, pg_bin: Path | None, stop: asyncio.Event, notice: Callable[[str | None], None]
) -> AsyncIterator[str]:
    """The one that is configured, or an embedded one, which is started again whenever it dies, however often that takes.
    `notice` is told what is wrong meanwhile, and None once it is back."""
    if config.database_url is not None:
        yield config.database_url.get_secret_value()
        return
    from paddock.db.embedded import embedded_postgres

    async with contextlib.AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(embedded_postgres(data, pg_bin=pg_bin))
        dsn = postgres.dsn

        async def started_again(pause: float) -> float:
            """Tries until it runs, after pauses that grow: what stops it, like a full disk, may last. The last pause."""
            nonlocal postgres
            for tries in count(1):
                await asyncio.sleep(pause)
                try:
                    await stack.aclose()
                    postgres = await stack.enter_async_context(embedded_postgres(data, pg_bin=pg_bin))
                    break
                except Exception as problem:  # whatever it was, it may be mended: nobody else would start it
                    pause = longer(pause)
                    said = f"PostgreSQL could not be started again (try {tries}, the next in {pause:g} s)"
                    log.error("%s: %s", said, problem)
                    notice(f"{said}: the log says why.")
            return pause

        async def keep() -> None:
            pause = 0.0
            while True:
                began = time.monotonic()
                await postgres.died.wait()
                pause = 0.0 if time.monotonic() - began > SETTLED.total_seconds() else longer(pause)
                log.error("PostgreSQL ended by itself (see %s): starting it again.", data / "postgres.log")
                notice("PostgreSQL ended by itself and is being started again.")
                pause = await started_again(pause)
                notice(None)
                if postgres.dsn != dsn:
                    log.error("PostgreSQL has another address now, which the control plane does not know: stopping.")
                    stop.set()
                    return

        keeper = asyncio.create_task(keep(), name="keep postgres")
        try:
            yield dsn
        finally:
            await cancel(keeper)


def longer(pause: float) -> float:
    return min(LONGEST_PAUSE, max(FIRST_PAUSE, pause * 2))


async def prepare(dsn: str, data: Path) -> dict[str, str]:
    """A migrated database, and a token for the person and one for the worker that it accepts."""
    from paddock.api.tokens import Tokens, everything, is_secret, new_secret
    from paddock.db.migrate import migrate
    from paddock.db.pool import open_database

    await migrate(dsn)
    secrets = {}
    async with open_database(dsn, durable=1, relaxed=1) as db:
        tokens = Tokens(db)
        for role, name in (("admin", "admin"), ("worker", "local worker")):
            file = data / f"{role}.token"
            secret = read(file) or new_secret()
            if not is_secret(secret):
                raise UpError(
                    f"{file} holds no token that Paddock made. Remove the file, and the next start makes a new one."
                )
            if not await tokens.keep(everything(name, role), secret, actor="paddock up"):  # type: ignore[arg-type]
                secret = new_secret()
                await tokens.create(everything(name, role), actor="paddock up", secret=secret)  # type: ignore[arg-type]
            write_private(file, secret + "\n")
            secrets[role] = secret
    return secrets
