"""What may be connected to is decided at the socket, not at the name."""

import asyncio
import logging
from datetime import timedelta
from ipaddress import ip_address

import pytest
from aiohttp import web

from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.jobs.webhooks import outbound
from paddock.jobs.webhooks.outbound import HttpAnswer, checked_url, is_public
from tests.webhook.receiver import FakeResolver, Receiver, answering, receiving


async def post(url: str, *, allow_private: bool = True, resolver: FakeResolver | None = None) -> HttpAnswer:
    return await outbound.post(url, b"{}", {}, allow_private=allow_private, owner="ann", resolver=resolver)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",  # shared by carriers
        "100.100.100.200",  # metadata
        "127.0.0.1",
        "168.63.129.16",  # metadata
        "169.254.169.254",  # metadata
        "172.16.0.1",
        "192.0.0.192",  # metadata
        "192.168.1.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::10.0.0.1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "fc00::1",
        "fd00:ec2::254",  # metadata
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
    ],
)
def test_what_is_not_on_the_internet_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1"]
)
def test_what_is_on_the_internet_is_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "https:///nowhere",
        "https://user:hunter2@example.com/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:169.254.169.254]/latest/meta-data",
        "https://example.com:99999/",
        "https://[/",
        "",
    ],
)
def test_a_bad_url_is_refused_before_anything_is_asked(url: str) -> None:
    with pytest.raises(PermanentRunnerError) as refused:
        checked_url(url, allow_private=False)
    assert refused.value.code in ("url_refused", "address_refused")
    assert "hunter2" not in str(refused.value)


async def test_a_public_name_at_a_private_address_is_refused_when_connecting() -> None:
    async with receiving(answering(200)) as receiver:
        url = f"https://hooks.example.com:{receiver.port}/"
        assert checked_url(url, allow_private=False)

        with pytest.raises(PermanentRunnerError) as refused:
            await post(url, allow_private=False, resolver=FakeResolver("127.0.0.1"))

        assert refused.value.code == "address_refused"
        assert receiver.requests == []


@pytest.mark.parametrize("address", ["::1", "::ffff:127.0.0.1", "169.254.169.254", "0.0.0.0", "localhost"])
async def test_no_disguise_of_a_private_address_helps(address: str) -> None:
    with pytest.raises(PermanentRunnerError) as refused:
        await post("https://hooks.example.com/", allow_private=False, resolver=FakeResolver(address))
    assert refused.value.code == "address_refused"


async def test_a_name_that_resolves_differently_the_second_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding. 127.0.0.1 plays a public address here, 127.0.0.2 a private one."""
    monkeypatch.setattr(outbound, "is_public", lambda address: address == ip_address("127.0.0.1"))
    rebinding = FakeResolver("127.0.0.1", "127.0.0.2")
    async with receiving(answering(204), host="0.0.0.0") as receiver:
        url = f"https://hooks.example.com:{receiver.port}/"

        with pytest.raises(TransientResourceError) as reached:
            await post(url, allow_private=False, resolver=rebinding)
        with pytest.raises(PermanentRunnerError) as refused:
            await post(url, allow_private=False, resolver=rebinding)

    assert reached.value.code == "receiver_tls"  # it was connected to, and speaks plain HTTP
    assert refused.value.code == "address_refused"
    assert rebinding.asked == 2


async def test_the_public_one_of_several_addresses_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "is_public", lambda address: address == ip_address("127.0.0.1"))
    async with receiving(answering(200), host="0.0.0.0") as receiver:
        with pytest.raises(TransientResourceError) as reached:
            await post(
                f"https://hooks.example.com:{receiver.port}/",
                allow_private=False,
                resolver=FakeResolver(["127.0.0.2", "127.0.0.1"]),
            )
    assert reached.value.code == "receiver_tls"


async def test_private_receivers_can_be_allowed() -> None:
    async with receiving(answering(204)) as receiver:
        answer = await post(receiver.url("hooks.internal"), resolver=FakeResolver("127.0.0.1"))
    assert answer.status == 204


async def test_a_redirect_is_answered_and_not_followed() -> None:
    async with receiving(answering(200)) as elsewhere:
        async with receiving(answering(307, {"Location": elsewhere.url()})) as receiver:
            assert (await post(receiver.url())).status == 307
        assert elsewhere.requests == []


async def test_proxies_and_credentials_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving(answering(200)) as proxy, receiving(answering(200)) as receiver:
        monkeypatch.setenv("HTTP_PROXY", proxy.url(path=""))
        monkeypatch.setenv("http_proxy", proxy.url(path=""))
        await post(receiver.url())
        assert len(receiver.requests) == 1
        assert proxy.requests == []


async def test_an_endless_answer_is_read_to_a_bound() -> None:
    sent = 0
    gave_up = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65536)
                sent += 65536
        except (ConnectionError, asyncio.CancelledError):
            gave_up.set()
            raise

    async with receiving(endless) as receiver:
        assert (await post(receiver.url())).status == 200
        await gave_up.wait()
    # What the buffers of both sockets and of aiohttp hold comes on top of what was read.
    assert sent < 32 * 1024 * 1024


async def test_an_answer_whose_body_never_ends_still_counts() -> None:
    async def dawdle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=202)
        await response.prepare(request)
        await response.write(b"and")
        await asyncio.Event().wait()
        return response

    async with receiving(dawdle) as receiver, asyncio.timeout(60):
        answer = await outbound.post(
            receiver.url(), b"{}", {}, allow_private=True, owner="ann", timeout=timedelta(seconds=2)
        )
    assert answer.status == 202


async def test_a_receiver_that_never_answers_is_given_up() -> None:
    async def hang(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    async with receiving(hang) as receiver, asyncio.timeout(60):
        with pytest.raises(TransientResourceError) as gave_up:
            await outbound.post(
                receiver.url(), b"{}", {}, allow_private=True, owner="ann", timeout=timedelta(milliseconds=200)
            )
    assert gave_up.value.code == "receiver_timeout"
    assert str(gave_up.value) == "127.0.0.1 did not answer within 0.2 s."


@pytest.mark.parametrize(
    "host", ["2130706433", "127.1", "0x7f.1", "127.0.0.1.", "a" * 64 + ".com", "a." * 200 + "com", "x..y", "-", "*"]
)
async def test_strange_hosts_are_answered_with_a_sentence(host: str) -> None:
    with pytest.raises(InfrastructureError) as failure:
        await post(f"https://{host}/T0KEN", allow_private=False)
    assert str(failure.value).endswith(".")
    assert "T0KEN" not in str(failure.value)


async def test_nobody_listening_is_transient() -> None:
    async with receiving(answering(200)) as receiver:
        pass
    with pytest.raises(TransientResourceError) as unreachable:
        await post(receiver.url())
    assert unreachable.value.code == "receiver_unreachable"


async def failures_of(receiver: Receiver, path: str) -> list[InfrastructureError]:
    failures = []
    for url, allow_private in (
        (receiver.url(path=path), True),  # hangs up
        (f"http://127.0.0.1:1{path}", True),  # nobody listens
        (f"https://127.0.0.1:{receiver.port}{path}", True),  # no TLS
        (f"https://127.0.0.1:{receiver.port}{path}", False),  # private
        (f"http://example.com{path}", False),  # no https
    ):
        with pytest.raises(InfrastructureError) as failure:
            await post(url, allow_private=allow_private)
        failures.append(failure.value)
    return failures


async def test_errors_and_logs_hold_nothing_of_the_url_but_its_host(caplog: pytest.LogCaptureFixture) -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    caplog.set_level(logging.DEBUG)
    async with receiving(hang_up) as receiver:
        failures = await failures_of(receiver, "/T0KEN/in-the-path?key=hunter2")

    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("aiohttp.access")]
    told = "\n".join([*(f"{failure} {failure.hint} {failure.__cause__}" for failure in failures), *ours])
    assert "127.0.0.1" in told
    assert "T0KEN" not in told
    assert "hunter2" not in told
