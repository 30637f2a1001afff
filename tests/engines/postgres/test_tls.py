"""The way to the server is the one that was asked for, or none."""

import asyncio
import contextlib
import ssl
import struct
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from paddock.engines.postgres.engine import PostgresEngine
from paddock.jobs.errors import PermanentRunnerError
from tests.engines.postgres.conftest import Shop, settings_for
from tests.engines.postgres.reading import read


def _certificate(folder: Path, name: str) -> tuple[Path, Path]:
    key, certificate = folder / f"{name}.key", folder / f"{name}.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return key, certificate


class Encrypting:
    """TLS in front of the server, whose own build has none: answers the request for it, then passes on."""

    def __init__(self, port: int, key: Path, certificate: Path) -> None:
        self._port = port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(8) == struct.pack("!ii", 8, 80877103)
        writer.write(b"S")
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            await writer.start_tls(self._context)
            there, answers_to = await asyncio.open_connection("127.0.0.1", self._port)
            await asyncio.gather(_carry(reader, answers_to), _carry(there, writer), return_exceptions=True)
            answers_to.transport.abort()
        writer.transport.abort()


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        target.write(data)
        await target.drain()
    target.close()


async def test_a_certificate_is_verified_by_the_given_authority(shop: Shop, admin: object, tmp_path: Path) -> None:
    key, certificate = _certificate(tmp_path, "server")
    _, stranger = _certificate(tmp_path, "stranger")
    async with asyncio.timeout(60), Encrypting(shop.port, key, certificate) as port:
        url = f"postgresql://reader@127.0.0.1:{port}/paddock"
        sql = "SELECT 1.5::numeric(3,1) AS n, repeat('x', 100) FROM generate_series(1, 100000)"
        found = await read(PostgresEngine("shop", settings_for(shop, tmp_path, url=url, ca_file=certificate)), sql)
        assert (found.num_rows, found.schema.types[0]) == (100_000, pa.decimal128(3, 1))

        with pytest.raises(PermanentRunnerError) as refused:
            await read(PostgresEngine("shop", settings_for(shop, tmp_path, url=url, ca_file=stranger)), "SELECT 1")
        assert refused.value.code == "engine_tls"

        named = settings_for(shop, tmp_path, url=url.replace("127.0.0.1", "localhost"), ca_file=certificate)
        with pytest.raises(PermanentRunnerError) as misnamed:
            await read(PostgresEngine("shop", named), "SELECT 1")
        assert misnamed.value.code == "engine_tls"


async def test_no_tls_is_no_way_where_it_is_required(shop: Shop, admin: object, tmp_path: Path) -> None:
    with pytest.raises(PermanentRunnerError) as found:
        await read(PostgresEngine("shop", settings_for(shop, tmp_path, ssl="require")), "SELECT 1")
    assert found.value.code == "engine_tls"
