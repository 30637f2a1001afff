"""Connections: those to the coordinator, and those to the store that segments are in."""

import ssl
from pathlib import Path

import aiohttp

from paddock.jobs.errors import PermanentRunnerError


class Sessions:
    """Made when they are first used, inside the loop that uses them."""

    def __init__(self, ca_file: Path | None) -> None:
        self._ca_file = ca_file
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    @property
    def coordinator(self) -> aiohttp.ClientSession:
        return self._session_to("coordinator")

    @property
    def storage(self) -> aiohttp.ClientSession:
        """For the store that segments are in, whose certificate may be anybody's."""
        return self._session_to("storage")

    def _session_to(self, to: str) -> aiohttp.ClientSession:
        """Carries nobody's headers, cookies or credentials. No limit: Trino's resource groups throttle."""
        if to not in self._sessions:
            trusted = self._trusted(only_ours=to == "coordinator")
            self._sessions[to] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30, ssl=trusted),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                headers={"User-Agent": "paddock"},
            )
        return self._sessions[to]

    def _trusted(self, *, only_ours: bool) -> ssl.SSLContext:
        # Explicit, so that no environment variable puts another authority in its place.
        ca_file = self._ca_file
        if ca_file is None:
            return ssl.create_default_context()
        try:
            if only_ours:
                return ssl.create_default_context(cafile=str(ca_file))
            trusted = ssl.create_default_context()
            trusted.load_verify_locations(cafile=str(ca_file))
            return trusted
        except (OSError, ssl.SSLError) as problem:
            raise PermanentRunnerError(
                f"The certificates in {ca_file} cannot be read: {problem.strerror or problem}.",
                code="engine_certificate",
                hint="Correct `ca_file` of this engine in paddock.toml.",
            ) from None

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()
