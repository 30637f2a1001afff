"""All of it, from the start until a signal."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.up.asking import sign_in_link, until_ready
from paddock.up.database import database, prepare
from paddock.up.folder import address, make_folder, ownership
from paddock.up.keeping import Kept
from paddock.up.ports import LOOPBACK, choose_port

if TYPE_CHECKING:
    from paddock.config import Config

EVERYWHERE = "0.0.0.0"  # noqa: S104  only compared with

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Running:
    """What there is to say once it answers."""

    url: str
    data: Path
    sign_in: str | None
    seconds: float


async def up(
    config: "Config",
    *,
    with_worker: bool = True,
    pg_bin: Path | None = None,
    announce: Callable[[Running], None] = lambda _: None,
) -> None:
    """Runs until SIGINT, SIGTERM or SIGHUP."""
    began = time.monotonic()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    data = config.data.resolve()
    make_folder(data)
    with ownership(data):
        (data / "server.json").unlink(missing_ok=True)  # of one that was killed
        port = choose_port(config)
        host = config.host or LOOPBACK
        url = f"http://{LOOPBACK if host == EVERYWHERE else host}:{port}"
        async with contextlib.AsyncExitStack() as stack:
            # Started before its database: its imports take longer than PostgreSQL does.
            plane = await stack.enter_async_context(Kept("serve", data).running())
            from paddock import log as logs

            logs.configure(config.log_level, config.log_format)
            dsn = await stack.enter_async_context(database(config, data, pg_bin, stop, plane.notice))
            (data / "objects").mkdir(mode=0o700, exist_ok=True)
            secrets = await prepare(dsn, data)
            # Postgres goes last: stopped in the reverse order of being entered, but both children need it.
            stack.push_async_callback(plane.stop)
            plane.tell(lambda _: {"database_url": dsn, "host": host, "port": port})
            await until_ready(url, plane, stop)
            if with_worker and not stop.is_set():
                worker = await stack.enter_async_context(Kept("worker", data).running())
                worker.tell(
                    lambda n: {"server": url, "token": secrets["worker"], "worker_port": 0, "worker_id": f"local-{n}"}
                )
            if not stop.is_set():
                with address(data, url):
                    sign_in = await asyncio.to_thread(sign_in_link, url, secrets["admin"])
                    announce(Running(url, data, sign_in, time.monotonic() - began))
                    await stop.wait()
            log.info("Stopping.")
