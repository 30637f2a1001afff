"""Names that nobody answers for keep no other owner's receivers waiting."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from paddock.jobs.errors import TransientResourceError
from paddock.jobs.webhooks import lookups, outbound
from paddock.jobs.webhooks.outbound import HttpAnswer
from tests.webhook.receiver import answering, receiving

LONG = timedelta(seconds=120)


class Dns:
    """The system's resolver: what ends in `.hangs` has no answer until the test is over. `asked` has those alone: a database,
    too, may be looked up while a test goes on."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.asked: list[str] = []
        self._real = socket.getaddrinfo

    def __call__(self, host: Any, *args: Any, **kwargs: Any) -> Any:
        if str(host).endswith(".hangs"):
            self.asked.append(str(host))
            self.over.wait(300)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return self._real("127.0.0.1" if str(host).endswith(".quick") else host, *args, **kwargs)


@pytest.fixture
async def dns(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Dns]:
    """Over before the event loop is: that waits for what its own threads look up."""
    dns = Dns()
    monkeypatch.setattr(socket, "getaddrinfo", dns)
    yield dns
    dns.over.set()


@pytest.fixture
def ann() -> str:
    """Another owner for each test: threads of the one before may not have ended yet, and count as its owner's."""
    return f"ann {uuid4()}"


async def post(url: str, owner: str) -> HttpAnswer:
    return await outbound.post(url, b"{}", {}, allow_private=True, owner=owner, timeout=LONG)


async def until_asked(dns: Dns, n: int) -> None:
    """In threads of the event loop's own, not so many would ever begin."""
    async with asyncio.timeout(60):
        while len(dns.asked) < n:  # noqa: ASYNC110  asked in threads
            await asyncio.sleep(0.01)


async def test_names_that_hang_keep_no_other_owner_waiting(dns: Dns, ann: str) -> None:
    async with receiving(answering(204), "127.0.0.1") as receiver:
        hanging = [asyncio.create_task(post(f"http://{n % 10}.hangs/", ann)) for n in range(20)]
        await until_asked(dns, 20)

        assert (await post(receiver.url("receiver.quick"), "bob")).status == 204

        assert not any(task.done() for task in hanging)
        dns.over.set()
        for task in hanging:
            with pytest.raises(TransientResourceError, match="could not be reached"):
                await task


async def test_one_name_that_hangs_leaves_its_owner_the_others(dns: Dns, ann: str) -> None:
    async with receiving(answering(204), "127.0.0.1") as receiver:
        hanging = [asyncio.create_task(post("http://one.hangs/", ann)) for _ in range(lookups.MOST_OF_NAME)]
        await until_asked(dns, len(hanging))
        with pytest.raises(TransientResourceError, match="was not looked up"):
            await post("http://one.hangs/", ann)
        assert (await post(receiver.url("receiver.quick"), ann)).status == 204
        dns.over.set()
        await asyncio.gather(*hanging, return_exceptions=True)


async def test_a_look_up_counts_until_it_has_ended_and_not_until_it_is_given_up(dns: Dns, ann: str) -> None:
    given_up = [asyncio.create_task(post(f"http://{n}.hangs/", ann)) for n in range(lookups.MOST_OF_OWNER)]
    await until_asked(dns, len(given_up))
    for task in given_up:
        task.cancel()
    await asyncio.gather(*given_up, return_exceptions=True)
    with pytest.raises(TransientResourceError, match="20 look-ups") as refused:
        await post("http://another.hangs/", ann)
    assert refused.value.code == "receiver_unreachable"

    dns.over.set()
    async with asyncio.timeout(60):
        while lookups._running[ann, ""]:  # noqa: ASYNC110  ended in threads
            await asyncio.sleep(0.01)
    with pytest.raises(TransientResourceError, match="could not be reached"):
        await post("http://another.hangs/", ann)


async def test_a_name_that_dns_cannot_hold_is_refused(dns: Dns, ann: str) -> None:
    with pytest.raises(Exception, match="cannot be used") as refused:
        await post(f"http://{'long' * 20}.example/", ann)
    assert getattr(refused.value, "code", None) == "url_refused"
