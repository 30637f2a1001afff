"""One chaos run: start everything, put it under load, kill at random moments, let it settle, look."""

import asyncio
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from paddock.api.tokens import Tokens, everything, new_secret
from paddock.db.migrate import migrate
from paddock.db.pool import UNAVAILABLE, open_database
from tests.chaos.load import MOST_OPEN, Load, Open, make_groups
from tests.chaos.processes import HOST, Kept, Postgres, thaw
from tests.chaos.verifying import KINDS, Findings, verify
from tests.ports import free_ports

CONTROL_PLANES = 2
WORKERS = 3
# A dead worker is noticed after a second and a half instead of a minute.
SHORT_LEASE = {
    "PADDOCK_BEAT_SECONDS": "0.25",
    "PADDOCK_LEASE_SECONDS": "1.5",
    "PADDOCK_RESCUE_SECONDS": "0.25",
    "PADDOCK_CLAIM_GRACE_SECONDS": "2",
    "PADDOCK_EMPTY_POLL_BACKOFF": "1",
    "PADDOCK_POLL_INTERVAL_SECONDS": "1",
    "PADDOCK_LOG_LEVEL": "info",
    "PADDOCK_LOG_FORMAT": "json",
}
SETTLE_SECONDS = 240.0
START_SECONDS = 60.0
MOST_PATIENCE = 5.0
# What dies, and how often compared with the others.
TARGETS = {
    "worker": 5,
    "worker and what it runs": 3,
    "a process of a worker": 3,
    "control plane": 4,
    "postgres": 2,
    "a process of postgres": 2,
    "freeze worker": 2,
    "freeze worker and what it runs": 2,
    "freeze control plane": 2,
    "freeze postgres": 1,
}


@dataclass(frozen=True)
class Options:
    kills: int
    jobs: int
    seed: int
    groups: int = 20
    pause: float = 1.0
    keep: bool = False


@dataclass
class Chaos:
    options: Options
    folder: Path
    chance: random.Random
    say: Callable[[str], None] = print
    kills: Counter[str] = field(default_factory=Counter)
    freezes: Counter[str] = field(default_factory=Counter)
    comings_back: list["asyncio.Task[None]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.postgres = Postgres(self.folder)
        self.planes: list[Kept] = []
        self.workers: list[Kept] = []

    async def start(self) -> Load:
        await self.postgres.start()
        dsn = self.postgres.dsn
        await migrate(dsn)
        secrets = {role: new_secret() for role in ("admin", "worker")}
        async with open_database(dsn, durable=1, relaxed=1) as db:
            for role, secret in secrets.items():
                await Tokens(db).create(everything(role, role), actor="chaos", secret=secret)  # type: ignore[arg-type]
        urls = []
        for n in range(CONTROL_PLANES):
            [port] = free_ports(1)
            urls.append(f"http://{HOST}:{port}")
            settings = {**SHORT_LEASE, "PADDOCK_DATABASE_URL": dsn, "PADDOCK_DATA": str(self.folder)}
            arguments = ["serve", "--port", str(port), "--host", HOST]
            self.planes.append(Kept(f"serve-{n}", self.folder, arguments, settings))
        for n in range(WORKERS):
            settings = {
                **SHORT_LEASE,
                "PADDOCK_SERVER": urls[n % CONTROL_PLANES],
                "PADDOCK_TOKEN": secrets["worker"],
                "PADDOCK_WORKER_PORT": "0",
                "PADDOCK_WORKER_ID": f"worker-{n}",
                "PADDOCK_DATA": str(self.folder),
            }
            self.workers.append(Kept(f"worker-{n}", self.folder, ["worker"], settings))
        for process in [*self.planes, *self.workers]:
            process.start()
        ledger = self.folder / "chaos.ledger"
        ledger.touch()
        load = Load(urls, secrets["admin"], ledger, random.Random(self.options.seed + 1))
        load.ids += [str(id) for id in await make_groups(dsn, self.options.groups, ledger, load.chance)]
        return load

    async def kill_all_along(self, ledger: Path) -> None:
        """At random moments, but under load: between two strikes some job got done, unless that takes too long."""
        await self._progress(ledger, START_SECONDS)
        while self.kills.total() < self.options.kills:
            await self._progress(ledger, MOST_PATIENCE)
            await asyncio.sleep(self.chance.expovariate(1 / self.options.pause))
            [target] = self.chance.choices(list(TARGETS), list(TARGETS.values()))
            if await self._strike(target):
                (self.freezes if target.startswith("freeze") else self.kills)[target] += 1

    async def _progress(self, ledger: Path, seconds: float) -> None:
        size, deadline = ledger.stat().st_size, time.monotonic() + seconds
        while ledger.stat().st_size == size and time.monotonic() < deadline:  # noqa: ASYNC110 - other processes write it
            await asyncio.sleep(0.05)

    async def _strike(self, target: str) -> bool:
        pick = self.chance.randrange(1 << 16)
        worker, plane = self.workers[pick % WORKERS], self.planes[pick % CONTROL_PLANES]
        match target:
            case "worker" | "worker and what it runs":
                return self._kill(worker, whole=target != "worker")
            case "a process of a worker":
                return worker.alive and worker.kill_child(pick)
            case "control plane":
                return self._kill(plane, whole=False)
            case "postgres":
                self.postgres.kill()
                await asyncio.sleep(self.chance.uniform(0, 1))
                await self.postgres.restart()
                return True
            case "a process of postgres":
                return self.postgres.kill_backend(pick)
            case "freeze postgres":
                self.postgres.freeze()
                await asyncio.sleep(self.chance.uniform(0.2, 2.5))
                self.postgres.thaw()
                return True
            case "freeze control plane":
                return self._freeze(plane, whole=False)
            case _:
                return self._freeze(worker, whole=target != "freeze worker")

    def _kill(self, process: Kept, *, whole: bool) -> bool:
        if not process.alive:
            return False
        (process.kill_tree if whole else process.kill)()
        self._later(self._start_again(process))
        return True

    async def _start_again(self, process: Kept) -> None:
        await process.reap()
        await asyncio.sleep(self.chance.uniform(0, 1))
        process.start()

    def _freeze(self, process: Kept, *, whole: bool) -> bool:
        if not process.alive:
            return False
        frozen = process.freeze(whole=whole)

        async def wake() -> None:
            # Up to well over the lease: who comes back then finds that its jobs have moved on.
            await asyncio.sleep(self.chance.uniform(0.3, 4))
            thaw(frozen)

        self._later(wake())
        return True

    def _later(self, work: Awaitable[None]) -> None:
        self.comings_back.append(asyncio.ensure_future(work))

    async def watch(self, now: Open) -> None:
        """Keeps the number of live jobs, asked of whatever PostgreSQL there is."""
        while True:
            try:
                async with asyncio.timeout(5):
                    now.jobs = await self._live()
            except Exception:
                # PostgreSQL dies under it, in every way there is: what counts is to look again.
                now.jobs = min(now.jobs, MOST_OPEN)
            await asyncio.sleep(0.3)

    async def _live(self) -> int:
        connection = await asyncpg.connect(self.postgres.dsn, timeout=3)
        try:
            return int(await connection.fetchval("SELECT count(*) FROM jobs WHERE kind = ANY ($1)", KINDS))
        finally:
            await connection.close(timeout=3)

    async def settle(self) -> bool:
        """Everybody is back; then everything ends by itself."""
        await asyncio.gather(*self.comings_back)
        for process in [*self.planes, *self.workers]:
            if not process.alive:
                process.start()
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            try:
                if await self._live() == 0:
                    return True
            except UNAVAILABLE:
                self.say("PostgreSQL is not back yet")
            await asyncio.sleep(0.3)
        return False

    async def stop(self) -> list[str]:
        stopped = await asyncio.gather(*(process.stop() for process in self.workers))
        stopped += await asyncio.gather(*(process.stop() for process in self.planes))
        return [
            f"{process.name} did not stop within 30 s of SIGTERM"
            for process, good in zip([*self.workers, *self.planes], stopped, strict=True)
            if not good
        ]


async def run(options: Options, say: Callable[[str], None] = print) -> Findings:
    # A short name: sockets have a limit. Not under a private TMPDIR: postgres runs under another account.
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))
    folder.chmod(0o755)
    chaos = Chaos(options, folder, random.Random(options.seed), say)
    began = time.monotonic()
    try:
        found = await _run(chaos)
    finally:
        for process in [*chaos.workers, *chaos.planes]:
            if process.alive:
                process.kill_tree()
        await chaos.postgres.stop()
    found.figures["seconds"] = round(time.monotonic() - began)
    if found.wrong or options.keep:
        say(f"What was written is kept in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return found


async def _run(chaos: Chaos) -> Findings:
    options, now = chaos.options, Open()
    load = await chaos.start()
    watching = asyncio.create_task(chaos.watch(now))
    loading = asyncio.create_task(load.submit(options.jobs, now))
    disturbing = asyncio.create_task(load.disturb())
    telling = asyncio.create_task(_tell(chaos, load, now))
    try:
        await chaos.kill_all_along(load.ledger)
        load.enough.set()
        await asyncio.gather(loading, disturbing)
    finally:
        for task in (watching, telling, loading, disturbing):
            task.cancel()
        await asyncio.gather(watching, telling, loading, disturbing, return_exceptions=True)
    settled = await chaos.settle()
    late = await chaos.stop()
    found = await verify(chaos.postgres.dsn, load.ids, load.retries, load.cancelled, load.ledger)
    found.check(settled, f"I2: not everything ended within {SETTLE_SECONDS:.0f} s after the last kill")
    found.wrong += late
    found.figures |= {"kills": chaos.kills.total(), **{f"killed: {name}": n for name, n in chaos.kills.most_common()}}
    found.figures |= {"freezes": chaos.freezes.total(), **dict(chaos.freezes.most_common())}
    found.figures |= {f"answers {status}": n for status, n in sorted(load.answers.items())}
    found.check(not load.answers["500"], f"{load.answers['500']} answers were a 500, which is always a bug")
    failed = [line for plane in chaos.planes for line in plane.lines('"request_failed"')]
    found.check(not failed, f"{len(failed)} requests failed for a reason nobody foresaw: {failed[:1]}")
    return found


async def _tell(chaos: Chaos, load: Load, now: Open) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(10)
        chaos.say(
            f"{time.monotonic() - began:5.0f} s  {chaos.kills.total():4} kills  {chaos.freezes.total():3} freezes  "
            f"{len(load.ids):6} jobs accepted, {now.jobs} live  load {os.getloadavg()[0]:.1f}"
        )
