"""Files of a snapshot behind links: on a real S3, and on a server that misbehaves as stores and networks do."""

import asyncio
import http
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import httpx2
import orjson
import pytest

from paddock.graphs import fetching
from paddock.graphs.instance import Instance
from paddock.graphs.plan import read_plan
from tests.graphs.inside import rows, start_of
from tests.graphs.running import cities, instance, until
from tests.storage.servers import BUCKET, Server

Answer = Callable[[str, dict[str, str]], bytes]


def linked(plan: dict[str, Any], link: Callable[[str], str]) -> dict[str, Any]:
    """The same plan with links in place of paths. `link` is given the name of the file."""
    told: dict[str, Any] = orjson.loads(orjson.dumps(plan))
    for table in (*told["nodes"], *told["edges"]):
        for file in table["files"]:
            file["url"] = link(Path(file.pop("path")).name)
    return told


async def test_signed_links_of_a_real_store_are_fetched_and_renewed(tmp_path: Path, s3_server: Server) -> None:
    plan = cities(tmp_path / "store")
    client = boto3.client(
        "s3",
        endpoint_url=s3_server.endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="testsecret",
        region_name="us-east-1",
    )
    for table in (*plan["nodes"], *plan["edges"]):
        path = Path(table["files"][0]["path"])
        client.upload_file(str(path), BUCKET, f"graphs/{path.name}")

    def signed(name: str, seconds: int = 900) -> str:
        place = {"Bucket": BUCKET, "Key": f"graphs/{name}"}
        link: str = client.generate_presigned_url("get_object", Params=place, ExpiresIn=seconds)
        return link

    run_out = linked(plan, lambda name: signed(name, 1))
    async with httpx2.AsyncClient() as browser, asyncio.timeout(60):
        while True:
            if (await browser.get(run_out["nodes"][0]["files"][0]["url"])).status_code != http.HTTPStatus.OK:
                break
            await asyncio.sleep(0.1)
    async with instance(tmp_path / "instance") as running:
        assert (await running.client.post("/load", json=run_out)).status_code == 202
        status = await running.until(lambda status: status["needs_links"])
        assert status["phase"] == "fetching"

        status = await running.load(linked(plan, signed))

        assert status["phase"] == "ready", status["error"]
        assert not status["needs_links"]
        assert await running.rows("MATCH (c:City) RETURN count(*)") == [[3]]
        again = await running.client.post("/load", json=run_out)
        assert (again.status_code, again.json()["data"]["phase"]) == (200, "ready")
        running.process.kill()
        await running.process.wait()
        assert "X-Amz" not in running.process.last_words
        assert "graphs/City" not in running.process.last_words


@asynccontextmanager
async def misbehaving(answer: Answer) -> AsyncIterator[str]:
    """A server whose whole answer to a GET is given by `answer`, bytes and all."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        writer.write(answer(head[0].split()[1].lstrip("/"), headers))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def whole(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n".encode() + body


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "AGAIN_SECONDS", 0.01)


async def load_from(tmp_path: Path, answer: Callable[[Path], Answer]) -> Instance:
    store = tmp_path / "store"
    plan = cities(store)
    inside = Instance(start_of(tmp_path / "instance"))
    async with misbehaving(answer(store)) as url:
        inside.load(read_plan(orjson.dumps(linked(plan, lambda name: f"{url}/{name}"))))
        await inside.settled()
    return inside


async def test_a_broken_download_goes_on_where_it_stopped(tmp_path: Path) -> None:
    asked: list[str | None] = []

    def answers(store: Path) -> Answer:
        def answer(name: str, headers: dict[str, str]) -> bytes:
            content, wanted = (store / name).read_bytes(), headers.get("range")
            if not name.startswith("City"):
                return whole(content)
            asked.append(wanted)
            if wanted is None:
                return whole(content[:100], length=len(content))
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
            return whole(content[begin:], "206 Partial Content")

        return answer

    inside = await load_from(tmp_path, answers)
    assert inside.error is None
    assert asked == [None, "bytes=100-"]
    assert await rows(inside, "MATCH (c:City) RETURN count(*)") == [[3]]
    await inside.close(0)


async def test_a_store_that_knows_no_ranges_is_read_from_the_beginning(tmp_path: Path) -> None:
    times: list[str] = []

    def answers(store: Path) -> Answer:
        def answer(name: str, headers: dict[str, str]) -> bytes:
            content = (store / name).read_bytes()
            times.append(name)
            cut = times.count(name) == 1
            return whole(content[:100] if cut else content, length=len(content))

        return answer

    inside = await load_from(tmp_path, answers)
    assert inside.error is None
    await inside.close(0)


async def test_a_store_that_is_away_is_waited_for(tmp_path: Path) -> None:
    times: list[str] = []

    def answers(store: Path) -> Answer:
        def answer(name: str, headers: dict[str, str]) -> bytes:
            times.append(name)
            if times.count(name) == 1:
                return whole(b"SlowDown", "503 Service Unavailable")
            return b"" if times.count(name) == 2 else whole((store / name).read_bytes())

        return answer

    inside = await load_from(tmp_path, answers)
    assert inside.error is None
    await inside.close(0)


@pytest.mark.parametrize(
    ("spoiled", "cause"),
    [
        (lambda content: whole(b"NoSuchKey", "404 Not Found"), "file_missing"),
        (lambda content: whole(b"x" * len(content)), "file_changed"),
        (lambda content: whole(content + b"and more"), "file_changed"),
    ],
)
async def test_a_file_that_is_gone_or_another_fails_the_load(
    tmp_path: Path, spoiled: Callable[[bytes], bytes], cause: str
) -> None:
    def answers(store: Path) -> Answer:
        return lambda name, headers: spoiled((store / name).read_bytes())

    inside = await load_from(tmp_path, answers)
    assert inside.error is not None
    assert inside.error.cause == cause
    await inside.close(0)


async def test_four_files_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All four are held until a fifth had its chance."""
    store = tmp_path / "store"
    plan = cities(store)
    for number in range(8):
        copy = store / f"copy-{number}.parquet"
        copy.write_bytes(Path(plan["edges"][0]["files"][0]["path"]).read_bytes())
        plan["edges"][0]["files"].append({**plan["edges"][0]["files"][0], "path": str(copy)})
    plan["edges"][0]["rows"] *= 9
    go, running, most = asyncio.Event(), 0, 0
    one = fetching.Fetching._local

    def held(self: fetching.Fetching, table: str, file: Any, target: Path) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result(60)
        one(self, table, file, target)
        running -= 1

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(fetching.Fetching, "_local", held)
    inside = Instance(start_of(tmp_path / "instance"))
    inside.load(read_plan(orjson.dumps(plan)))
    await until(lambda: running == 4)
    go.set()
    await inside.settled()

    assert inside.error is None
    assert most == 4
    assert inside.current is not None
    assert inside.current.counts["edges"] == {"ROAD": 27}
    assert inside.current.dangling_edges == {"ROAD": 9}
    await inside.close(0)
