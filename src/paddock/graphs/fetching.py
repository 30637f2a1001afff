"""The files of a snapshot, brought into the instance's own folder and checked against the sha256 that was written down.

A file at a path on this machine is linked, or copied where that cannot be; one behind a signed link is downloaded. Four
at a time, each in a thread. A link that ran out and a store that is away are waited for: the control plane posts new
links while it has patience, and it is the one that gives up. A file that is gone, or another one, fails the load.
"""

import asyncio
import errno
import hashlib
import http.client
import os
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import structlog

from paddock.graphs.plan import File, Plan, Table
from paddock.graphs.problems import LoadFailed

AT_ONCE = 4
READ_BYTES = 1 << 20
CONNECT_SECONDS = 20.0
AGAIN_SECONDS = 2.0
# What a store answers to a link that ran out; Azure says 403 and 409, Google 400.
RUN_OUT = frozenset({400, 401, 403, 409})

log = structlog.get_logger("paddock.graphs")


class LinkRanOut(Exception):
    """Another one is needed."""


class StoreAway(Exception):
    """It may work later, with the same link."""


class Fetching:
    """`links` may be renewed while it runs."""

    def __init__(self, plan: Plan, folder: Path, moved: Callable[[int], None]) -> None:
        self._tables = list(plan.tables())
        self._folder = folder
        self._moved = moved
        self._links: dict[tuple[str, int], str] = {}
        self._renewed = asyncio.Event()
        self._stop = threading.Event()
        self._lacking: set[tuple[str, int]] = set()
        self.renew(plan)

    @property
    def needs_links(self) -> bool:
        return bool(self._lacking)

    def renew(self, plan: Plan) -> None:
        for table in plan.tables():
            for place, file in enumerate(table.files):
                if file.url is not None:
                    self._links[table.name, place] = file.url
        self._lacking.clear()
        # A new event for the next time: whoever used an old link waits for the one that was current when it began.
        self._renewed.set()
        self._renewed = asyncio.Event()

    async def all(self) -> dict[str, list[str]]:
        """The names of the files of each table, in `folder`. Raises LoadFailed."""
        await asyncio.to_thread(_made_anew, self._folder)
        room = asyncio.Semaphore(AT_ONCE)
        try:
            async with asyncio.TaskGroup() as group:
                names = {
                    table.name: [
                        group.create_task(self._one(number, table, place, room)) for place in range(len(table.files))
                    ]
                    for number, table in enumerate(self._tables)
                }
        except BaseExceptionGroup as several:
            raise _first(several.exceptions) from None
        finally:
            self._stop.set()
        return {name: [task.result() for task in tasks] for name, tasks in names.items()}

    async def _one(self, number: int, table: Table, place: int, room: asyncio.Semaphore) -> str:
        file = table.files[place]
        name = f"{number:05}-{place:05}.parquet"
        target = self._folder / name
        async with room:
            if file.path is not None:
                await asyncio.to_thread(self._local, table.name, file, target)
            else:
                await self._remote(table.name, place, file, target)
        return name

    def _local(self, table: str, file: File, target: Path) -> None:
        assert file.path is not None
        try:
            link_or_copy(Path(file.path), target)
            with target.open("rb") as opened:
                digest = hashlib.sha256()
                while some := opened.read(READ_BYTES):
                    if self._stop.is_set():
                        return
                    digest.update(some)
                    self._moved(len(some))
        except FileNotFoundError:
            raise _missing(table) from None
        except OSError as problem:
            raise _disk(table, problem) from problem
        _check(table, file, digest.hexdigest())

    async def _remote(self, table: str, place: int, file: File, target: Path) -> None:
        download = Download(file, target, self._moved, self._stop)
        while True:
            renewed = self._renewed
            try:
                await asyncio.to_thread(download.go_on, self._links[table, place])
            except LinkRanOut:
                if not renewed.is_set():
                    self._lacking.add((table, place))
                await renewed.wait()
            except StoreAway as away:
                log.warning("store_away", table=table, problem=str(away))
                await asyncio.sleep(AGAIN_SECONDS)
            except FileNotFoundError:
                raise _missing(table) from None
            except OSError as problem:
                raise _disk(table, problem) from problem
            else:
                break
        _check(table, file, download.sha256)


class Download:
    """One file, gone on with where it stopped."""

    def __init__(self, file: File, target: Path, moved: Callable[[int], None], stop: threading.Event) -> None:
        self._file = file
        self._target = target
        self._moved = moved
        self._stop = stop
        self._digest = hashlib.sha256()
        self._done = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def go_on(self, url: str) -> None:
        """Returns when all is there. Never tells the link: it is a secret."""
        with self._opened(url) as answer:
            if self._done and answer.status != http.HTTPStatus.PARTIAL_CONTENT:
                self._begin_anew()
            with self._target.open("ab" if self._done else "wb") as target:
                self._copy(answer, target)
        if self._done < self._file.bytes:
            raise StoreAway("the connection ended before the file did")

    def _opened(self, url: str) -> http.client.HTTPResponse:
        if not url.startswith(("https://", "http://")):
            raise LinkRanOut
        headers = {"Range": f"bytes={self._done}-"} if self._done else {}
        request = urllib.request.Request(url, headers=headers)  # noqa: S310  the scheme is checked above
        try:
            answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=CONNECT_SECONDS)  # noqa: S310
        except urllib.error.HTTPError as problem:
            problem.close()
            if problem.code == http.HTTPStatus.NOT_FOUND:
                raise FileNotFoundError(errno.ENOENT, "the store has no such file") from None
            if problem.code in RUN_OUT:
                raise LinkRanOut from None
            raise StoreAway(f"the store answered {problem.code}") from None
        except (OSError, http.client.HTTPException) as problem:
            raise StoreAway(type(problem).__name__) from None
        return answer

    def _copy(self, answer: http.client.HTTPResponse, target: IO[bytes]) -> None:
        while not self._stop.is_set():
            try:
                some = answer.read(READ_BYTES)
            except (OSError, http.client.HTTPException) as problem:
                raise StoreAway(type(problem).__name__) from None
            if not some:
                return
            # A store that sends without end must not fill the disk.
            if self._done + len(some) > self._file.bytes:
                self._digest.update(b"more than there should be")
                self._done = self._file.bytes
                return
            target.write(some)
            self._digest.update(some)
            self._done += len(some)
            self._moved(len(some))

    def _begin_anew(self) -> None:
        self._moved(-self._done)
        self._digest, self._done = hashlib.sha256(), 0


def link_or_copy(source: Path, target: Path) -> None:
    """A link keeps the file that is checked, whatever takes its name meanwhile."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def _made_anew(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _check(table: str, file: File, sha256: str) -> None:
    if sha256 != file.sha256:
        raise LoadFailed(
            "file_changed",
            f"{table}: a file of the snapshot is not the one that was written.",
            "Make the snapshot again.",
        )


def _missing(table: str) -> LoadFailed:
    return LoadFailed("file_missing", f"{table}: a file of the snapshot is gone.", "Make the snapshot again.")


def _disk(table: str, problem: OSError) -> LoadFailed:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return LoadFailed("disk_full", f"{table}: there is no room left on the disk.", "Make room, then reopen it.")
    return LoadFailed("file_missing", f"{table}: a file of the snapshot cannot be read: {problem.strerror}.")


def _first(problems: Sequence[BaseException]) -> BaseException:
    """What says most: a failure of the load before a bug, and that before a cancellation."""
    return next((one for one in problems if isinstance(one, LoadFailed)), problems[0])
