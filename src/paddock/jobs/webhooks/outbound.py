"""Requests to addresses that somebody else chose: the receivers of webhooks.

Whoever may register a URL must not be able to reach through us what only we can reach: the database, the cluster's
services, the cloud's metadata. So the rule is applied to each socket address in the moment before it is connected to,
and to nothing earlier. A name that resolved to a public address when it was registered, or when somebody looked, may
resolve to 127.0.0.1 now (DNS rebinding); a check of the name's answers would be one look-up too early.

Also: no redirect is followed (it would be a second address that nobody checked), proxies and credentials from the
environment are not used, cookies are not kept, the answer is read to a bound and never decompressed.

Errors name the host and nothing else of the URL: paths and queries of webhook URLs are often secrets.
"""

import contextlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from paddock.jobs.webhooks.lookups import Lookups

TIMEOUT = timedelta(seconds=15)
MAX_ANSWER_BYTES = 64 * 1024

# What `ipaddress` calls global, in some or all versions of Python we run on, and is not.
NOT_PUBLIC = tuple(
    map(
        ip_network,
        (
            "192.0.0.0/24",  # protocol assignments; one cloud's metadata service is 192.0.0.192
            "192.88.99.0/24",  # relays of 6to4
            "168.63.129.16/32",  # Azure's host, from inside any of its machines
            "2001::/23",  # Teredo and other protocol assignments
            "2002::/16",  # 6to4: the IPv4 address inside decides where it goes
            "3fff::/20",  # documentation
        ),
    )
)
# All that is routed on the Internet today; whatever else IPv6 has is local, reserved or a translation.
IPV6_UNICAST = IPv6Network("2000::/3")
NAT64 = IPv6Network("64:ff9b::/96")


class AddressRefused(OSError):
    """Not a public address."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    headers: Mapping[str, str]


def is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address in NAT64:
            return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
        if address not in IPV6_UNICAST:
            return False
    return (
        address.is_global
        and not (address.is_multicast or address.is_reserved)
        and not any(address in network for network in NOT_PUBLIC)
    )


def checked_url(url: str, *, allow_private: bool, allow_http: bool = False) -> URL:
    """What can be said without asking anybody; used when a URL is registered and again before each request."""
    try:
        parsed = URL(url)
    except ValueError:
        raise _url_refused("The URL cannot be read.") from None
    if parsed.scheme not in ("https", "http") or not parsed.host:
        raise _url_refused("The URL must begin with https:// and name a host.")
    if parsed.scheme == "http" and not (allow_private or allow_http):
        raise _url_refused(f"The URL of {parsed.host} must begin with https://.")
    if parsed.user is not None or parsed.password is not None:
        raise _url_refused(f"The URL of {parsed.host} must not hold a user or password.")
    if not allow_private and (address := _literal(parsed.host)) is not None and not is_public(address):
        raise _address_refused(parsed.host)
    return parsed


async def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    allow_private: bool,
    owner: str,
    allow_http: bool = False,
    timeout: timedelta = TIMEOUT,
    resolver: AbstractResolver | None = None,
) -> HttpAnswer:
    """Sends `body` once. The answer is whatever status came back; no answer is an exception that says why. `owner` is whose
    request it is: names that cannot be looked up keep only this owner's other requests waiting."""
    target = checked_url(url, allow_private=allow_private, allow_http=allow_http)
    host = target.host or ""
    gate = _Gate(allow_private)
    connector = aiohttp.TCPConnector(
        socket_factory=gate.open, resolver=resolver or Lookups(owner), use_dns_cache=False, force_close=True
    )
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=timeout.total_seconds()),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
            ) as session,
            session.post(target, data=body, headers=headers, allow_redirects=False) as response,
        ):
            await _read_some(response)
            return HttpAnswer(response.status, response.headers)
    # `from None` throughout: the texts of the causes hold the URL.
    except (aiohttp.InvalidURL, UnicodeError):  # the latter: a name that DNS cannot hold
        raise _url_refused(f"The URL of {host} cannot be used.") from None
    except TimeoutError:
        raise TransientResourceError(
            f"{host} did not answer within {timeout.total_seconds():g} s.", code="receiver_timeout"
        ) from None
    except aiohttp.ClientSSLError as error:
        raise TransientResourceError(
            f"No secure connection to {host}: {_why(error)}.",
            code="receiver_tls",
            hint="Check the receiver's certificate.",
        ) from None
    except (aiohttp.ClientError, OSError) as error:
        if gate.refused and not gate.opened:
            raise _address_refused(host) from None
        raise TransientResourceError(
            f"{host} could not be reached: {_why(error)}.", code="receiver_unreachable"
        ) from None


class _Gate:
    """Opens the sockets of one request, each for the address it is about to be connected to."""

    def __init__(self, allow_private: bool) -> None:
        self.allow_private = allow_private
        self.refused = 0
        self.opened = 0

    def open(self, target: tuple[Any, ...]) -> socket.socket:
        family, type_, proto, _, address = target
        literal = _literal(address[0])
        # Not a number: a resolver gave a name, which connecting would resolve once more, unseen.
        if literal is None or not (self.allow_private or is_public(literal)):
            self.refused += 1
            raise AddressRefused("not a public address")
        self.opened += 1
        return socket.socket(family, type_, proto)


async def _read_some(response: aiohttp.ClientResponse) -> None:
    """Lets a receiver that writes something end in peace. Its status is the answer, whatever follows."""
    left = MAX_ANSWER_BYTES
    with contextlib.suppress(aiohttp.ClientError, OSError):
        while left > 0 and (chunk := await response.content.read(min(left, 16 * 1024))):
            left -= len(chunk)


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _why(error: BaseException) -> str:
    """The system's own words where there are some; never `str(error)`, which may quote the request."""
    cause = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    said = getattr(cause, "verify_message", None) or getattr(cause, "strerror", None) or type(cause).__name__
    return str(said).rstrip(".")


def _url_refused(message: str) -> PermanentRunnerError:
    return PermanentRunnerError(message, code="url_refused", hint="Register a URL like https://example.com/hooks.")


def _address_refused(host: str) -> PermanentRunnerError:
    return PermanentRunnerError(
        f"{host} is not at a public address, and Paddock does not send to private ones.",
        code="address_refused",
        hint="Use a public receiver, or set PADDOCK_WEBHOOK_ALLOW_PRIVATE=true if everybody who may register"
        " webhooks may reach your network.",
    )
