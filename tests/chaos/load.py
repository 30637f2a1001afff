"""The load: probe jobs of every sort over the public API, from a client that repeats what got no answer."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp

from paddock.jobs import grouping
from paddock.jobs.core import open_core
from paddock.jobs.model import NewJob
from paddock.known_kinds import all_kinds

LOCKS = 20
BATCH = 25
# Enough to keep all workers busy, not so much that the end takes long.
MOST_OPEN = 200
AGAIN_AFTER = 0.2
PATIENCE = aiohttp.ClientTimeout(total=5)


def payload(chance: random.Random, ledger: Path) -> dict[str, Any]:
    """One job's script. `result` is its own, so that a completed job must show exactly it."""
    script: dict[str, Any] = {"ledger": str(ledger), "result": chance.randrange(1 << 30)}
    sort = chance.random()
    if sort < 0.35:
        script["sleep_seconds"] = round(chance.uniform(0, 0.3), 3)
    elif sort < 0.55:
        script |= {"progress": 4, "save_each_step": True, "sleep_seconds": round(chance.uniform(0.1, 0.8), 3)}
    elif sort < 0.7:
        script |= {"turns": chance.randint(2, 4), "turn_delay_seconds": 0.1, "sleep_seconds": 0.05}
        script["waiting_on"] = chance.choice([None, "something outside"])
    elif sort < 0.8:
        script |= {"fail_transiently": chance.randint(1, 2), "leave": "a thing"}
    elif sort < 0.85:
        script |= {"fail": "as asked for", "leave": "a thing"}
    elif sort < 0.95:
        script |= {"sleep_seconds": round(chance.uniform(0.5, 3), 3), "leave": "a thing"}
    return script


def body(chance: random.Random, ledger: Path) -> dict[str, Any]:
    kind = "probe_blocking" if chance.random() < 0.04 else "probe"
    return {"kind": kind, "payload": payload(chance, ledger), "priority": chance.randint(1, 4)}


@dataclass
class Load:
    urls: Sequence[str]
    token: str
    ledger: Path
    chance: random.Random
    ids: list[str] = field(default_factory=list)
    # Told by the API that they are cancelled: they must stay so.
    cancelled: set[str] = field(default_factory=set)
    retries: set[str] = field(default_factory=set)
    answers: Counter[str] = field(default_factory=Counter)
    # Set when no more kills will come: the load goes on at least as long.
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    submitted: asyncio.Event = field(default_factory=asyncio.Event)

    async def submit(self, jobs: int, open_now: "Open") -> None:
        """Batches while fewer than MOST_OPEN jobs wait, with single jobs that want a lock between them."""
        async with aiohttp.ClientSession(timeout=PATIENCE) as http:
            while len(self.ids) < jobs or not self.enough.is_set():
                if open_now.jobs > MOST_OPEN:
                    await asyncio.sleep(0.1)
                    continue
                batch = [body(self.chance, self.ledger) for _ in range(BATCH)]
                made = await self._until_answered(http, "/api/jobs/batch", {"jobs": batch})
                self.ids += [job["id"] for job in made]
                open_now.jobs += len(made)
                await self._lock_one(http)
        self.submitted.set()

    async def _lock_one(self, http: aiohttp.ClientSession) -> None:
        wanted = body(self.chance, self.ledger)
        wanted["payload"] |= {"lock": f"table-{self.chance.randrange(LOCKS)}", "leave": "half a table"}
        made = await self._until_answered(http, "/api/jobs", wanted)
        if made is not None:
            self.ids.append(made["id"])

    async def disturb(self) -> None:
        """People cancel what runs and retry what ended, until told to stop."""
        async with aiohttp.ClientSession(timeout=PATIENCE) as http:
            while not self.submitted.is_set():
                await asyncio.sleep(self.chance.uniform(0.05, 0.3))
                if not self.ids:
                    continue
                id = self.ids[-1 - self.chance.randrange(min(len(self.ids), 300))]
                if self.chance.random() < 0.7:
                    if (await self._ask(http, f"/api/jobs/{id}/cancel", {}, None))[0] == 200:
                        self.cancelled.add(id)
                else:
                    made = await self._until_answered(http, f"/api/jobs/{id}/retry", {})
                    if made is not None:
                        self.retries.add(made["id"])

    async def _until_answered(self, http: aiohttp.ClientSession, path: str, message: dict[str, Any]) -> Any:
        """None when it is refused. The key makes a repetition harmless: a lost answer is asked for again."""
        key = str(uuid4())
        while True:
            status, answer = await self._ask(http, path, message, key)
            if status == 202:
                return answer["data"]
            if status in (404, 409):
                return None
            assert status >= 500 or status == 429 or status == 0, f"{path}: {status} {answer}"
            await asyncio.sleep(AGAIN_AFTER)

    async def _ask(
        self, http: aiohttp.ClientSession, path: str, message: dict[str, Any], key: str | None
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.token}"} | ({"Idempotency-Key": key} if key else {})
        try:
            async with http.post(self.chance.choice(self.urls) + path, json=message, headers=headers) as response:
                self.answers[str(response.status)] += 1
                return response.status, await response.json()
        except (aiohttp.ClientError, TimeoutError, ValueError):
            self.answers["none"] += 1
            return 0, None


@dataclass
class Open:
    """How many jobs were live when somebody last looked."""

    jobs: int = 0


async def make_groups(dsn: str, groups: int, ledger: Path, chance: random.Random) -> list[UUID]:
    """Sealed groups, as a capability would make them: with their jobs, in one transaction each."""
    made: list[UUID] = []
    async with open_core(dsn, all_kinds(), durable=2, relaxed=2) as core:
        for _ in range(groups):
            async with core.db.transaction() as tx:
                group = await grouping.create(tx, "probe", "admin")
                jobs = [NewJob("probe", payload(chance, ledger), owner="admin", group_id=group) for _ in range(5)]
                made += await core.enqueue(tx, jobs)
                await grouping.seal(core, tx, group)
    return made
