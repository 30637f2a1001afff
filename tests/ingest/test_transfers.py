"""What a step's containers may read and write: their own step, while its job lives, within their bounds, and nothing else."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx2
import orjson
import pytest

from paddock.api.app import create_app
from paddock.ingest import on_cluster, runs, transfer_files, transfer_routes, transferring
from paddock.ingest.kinds import step_kinds
from paddock.ingest.model import FetchPayload, Run, prefix_of_step
from paddock.ingest.outputs import MAX_FILE
from paddock.ingest.resources import IngestResources
from paddock.ingest.transfer_files import PIECE, sealed_outputs, token_of
from paddock.ingest.transferring import Plane, ship
from paddock.ingest.trying import turn_of
from paddock.jobs.errors import PermanentRunnerError
from paddock.storage.store import open_managed
from paddock.web import pages
from tests.api.conftest import BASE
from tests.ingest.conftest import Served

DIGEST = f"registry.example/orders@sha256:{'a' * 64}"
DRAFT = "0" * 32


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_NUMBERS", "hush-hush")


@dataclass
class Container:
    served: Served
    client: httpx2.AsyncClient
    run: Run
    token: str
    path: str

    async def ask(self, method: str, path: str, content: bytes = b"", *, token: str | None = None) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        return await self.client.request(method, f"{self.path}/{path}", content=content, headers=headers)

    async def put(self, name: str, content: bytes, piece: int = 0, draft: str = DRAFT) -> int:
        return (await self.ask("PUT", f"outputs/{draft}/{name}/{piece}", content)).status_code

    async def seal(self, **files: list[bytes]) -> int:
        told = {
            name.replace("_", "."): [[len(one), hashlib.sha256(one).hexdigest()] for one in some]
            for name, some in files.items()
        }
        return (await self.ask("PUT", f"outputs/{DRAFT}/seal", json.dumps({"files": told}).encode())).status_code


@pytest.fixture
async def container(served: Served) -> AsyncIterator[Container]:
    """The container of a fetch whose job has saved its draft."""
    served.sources["there"] = {"image": DIGEST, "runtime": "kubernetes", "config": {"total": 3}}
    served._configure()
    assert served.clients is not None
    served.clients.app = create_app(served.core, served.config, routes=pages.routes())
    run = await served.start("there", begin="session", session='{"after": 1}')
    assert run.runtime == "kubernetes"
    assert run.transfer_key is not None
    async with served.core.db.transaction() as tx:
        kinds = await tx.fetch("SELECT kind FROM jobs WHERE group_id = $1", run.group_id)
        assert [row["kind"] for row in kinds] == ["run_ingester:kubernetes"]
        await tx.execute(
            "UPDATE jobs SET saved = $1 WHERE group_id = $2", json.dumps({"transfer": DRAFT}), run.group_id
        )
    token = token_of(run.transfer_key, str(run.id), 0, "fetch")
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(served.clients.app), base_url=BASE) as anonymous:
        yield Container(served, anonymous, run, token, f"/internal/ingest/{run.id}/0/fetch")


async def test_a_container_reads_its_inputs_and_seals_its_outputs_once(container: Container) -> None:
    listed = await container.ask("GET", "inputs")
    assert listed.json() == {"inputs": ["config.json", "session.json"]}
    assert orjson.loads((await container.ask("GET", "inputs/config.json")).content) == {"total": 3}
    assert (await container.ask("GET", "inputs/session.json")).content == b'{"after": 1}'
    first, second = b"x" * PIECE, b"y\n"
    assert await container.put("records.jsonl", first) == 204
    assert await container.put("records.jsonl", second, 1) == 204
    store = open_managed(container.served.config)
    prefix = prefix_of_step("there", str(container.run.id), 0, "fetch")
    assert await sealed_outputs(store, prefix, DRAFT) is None
    assert await container.seal(records_jsonl=[first, second], session_json=[]) == 204
    assert await container.seal(records_jsonl=[first, second], session_json=[]) == 204, "an answer may be lost"
    found = await sealed_outputs(store, prefix, DRAFT)
    assert found is not None
    assert {name: len(pieces) for name, pieces in found.items()} == {"session.json": 0, "records.jsonl": 2}
    assert b"".join([await store.read(key) for key, _ in found["records.jsonl"]]) == first + second


async def test_a_step_cannot_say_itself_what_its_secrets_look_like(container: Container, tmp_path: Path) -> None:
    told: list[str] = []

    class Told(Plane):
        def __init__(self) -> None: ...

        def send(self, method: str, path: str, content: bytes) -> None:
            told.append(path)

    (tmp_path / "hidden.json").write_bytes(b"[]")
    (tmp_path / "session.json").write_bytes(b"{}")
    ship(Told(), tmp_path, "fetch", DRAFT)
    assert told == [f"outputs/{DRAFT}/session.json/0", f"outputs/{DRAFT}/seal"]
    assert await container.put("hidden.json", b"[]") == 204, "`fetch` may"
    assert await container.seal(hidden_json=[b"[]"]) == 404


@pytest.mark.parametrize(("there", "hidden"), [(1, False), (2, True)])
def test_of_secrets_that_are_not_all_there_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: int, hidden: bool
) -> None:
    """The other may be there when the step starts, and what it prints of it would be shown."""
    sent: list[str] = []
    monkeypatch.setattr(transferring, "fetch", lambda *_: None)
    monkeypatch.setattr(Plane, "send", lambda _self, _method, path, _content: sent.append(path))
    values = {f"PADDOCK_HIDDEN_{n}": f"value {n}" for n in range(there)}
    ours = {
        "PADDOCK_TRANSFER_URL": BASE,
        "PADDOCK_TRANSFER_TOKEN": "t",
        "PADDOCK_DRAFT": DRAFT,
        "PADDOCK_IN": str(tmp_path),
    }
    assert transferring.main("fetch", {**ours, **values, "PADDOCK_HIDES": "2"}) == 0
    assert bool(sent) is hidden


async def test_a_token_is_good_for_its_own_step_alone(container: Container) -> None:
    run, key = container.run, container.run.transfer_key
    assert key is not None
    foreign = [
        "",
        "nonsense",
        token_of(key, str(run.id), 1, "fetch"),
        token_of(key, str(run.id), 0, "hooks"),
        token_of(b"another run's", str(run.id), 0, "fetch"),
    ]
    for token in foreign:
        for method, path in (
            ("GET", "inputs"),
            ("GET", "inputs/session.json"),
            ("PUT", f"outputs/{DRAFT}/records.jsonl/0"),
        ):
            answer = await container.ask(method, path, b"x", token=token)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "transfer_refused"), (token, path)
    for path in (
        f"/internal/ingest/{run.id}/1/fetch",
        f"/internal/ingest/{run.id}/0/hooks",
        "/internal/ingest/x/0/fetch",
    ):
        answer = await container.client.get(f"{path}/inputs", headers={"Authorization": f"Bearer {container.token}"})
        assert answer.status_code == 403, path
    assert (await container.client.get(f"{container.path}/inputs")).status_code == 403


async def test_what_is_not_the_steps_is_refused(container: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await container.put("features.jsonl", b"x") == 404, "an output of another step"
    assert await container.put("..%2Fother", b"x") == 404
    assert await container.put("records.jsonl", b"x", draft="1" * 32) == 403, "the draft of another try"
    assert (await container.ask("GET", "inputs/stored.jsonl")).status_code == 404
    assert await container.put("records.jsonl", b"x" * (PIECE + 1)) == 413
    beyond = -(-(MAX_FILE + 1) // PIECE)
    assert await container.put("records.jsonl", b"xx", beyond) == 413, "beyond what the file may have"
    assert await container.put("messages.jsonl", b"x", (1 << 30) // PIECE) == 413, "beyond 1 GiB"
    assert await container.seal(records_jsonl=[b"never sent"]) == 409, "what is not there is not sealed"
    assert (await container.ask("PUT", f"outputs/{DRAFT}/seal", b"{}")).status_code == 422
    assert transfer_files.OUTPUTS.keys() == {"fetch", "hooks"}


async def test_what_is_sealed_is_not_changed_any_more(container: Container) -> None:
    assert await container.put("records.jsonl", b"first") == 204
    assert await container.seal(records_jsonl=[b"first"]) == 204
    assert await container.put("records.jsonl", b"other") == 409
    assert await container.put("session.json", b"more") == 409
    assert await container.seal(records_jsonl=[b"first"], session_json=[]) == 409, "with something else"
    store = open_managed(container.served.config)
    found = await sealed_outputs(store, prefix_of_step("there", str(container.run.id), 0, "fetch"), DRAFT)
    assert found is not None
    assert [await store.read(key) for key, _ in found["records.jsonl"]] == [b"first"]


async def test_a_piece_that_does_not_come_gives_its_place_back(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_routes, "PIECE_TAKES", timedelta(0))
    assert container.served.clients is not None
    container.served.clients.app.state.ingest_pieces = places = asyncio.Semaphore(1)

    async def never() -> AsyncIterator[bytes]:
        yield b"a little"
        await asyncio.Event().wait()

    headers = {"Authorization": f"Bearer {container.token}"}
    for _ in range(2):
        answer = await container.client.put(
            f"{container.path}/outputs/{DRAFT}/records.jsonl/0", content=never(), headers=headers
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "transfer_slow"), "it is asked for again"
        assert not places.locked()


async def test_a_catalog_that_is_not_there_is_said_to_the_container_and_to_the_worker(container: Container) -> None:
    served = container.served
    catalog = served.folder / "catalog.json"
    served.sources["there"] |= {"protocol": "singer", "command": ["tap"], "catalog": str(catalog)}
    served._configure()
    assert served.clients is not None
    served.clients.app = app = create_app(served.core, served.config, routes=pages.routes())
    fetch = next(kind for kind in step_kinds(served.config) if kind.name == "run_ingester:kubernetes")
    assert fetch.secrets is not None
    payload = FetchPayload(run_id=str(container.run.id), source="there", batch=0, batch_size=10)

    async def told() -> tuple[int, bool]:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client:
            answer = await client.get(
                f"{container.path}/inputs/catalog.json", headers={"Authorization": f"Bearer {container.token}"}
            )
        assert fetch.secrets is not None
        async with served.core.db.transaction() as tx:
            secrets = await fetch.secrets(tx, payload)
        return answer.status_code, "catalog_missing" in secrets

    assert await told() == (404, True)
    catalog.write_text("{}")
    assert await told() == (200, False)

    turn = turn_of(payload)
    turn.secrets["catalog_missing"] = str(catalog)
    with pytest.raises(PermanentRunnerError, match="cannot read the catalog") as missing:
        await on_cluster.run_ingester(turn, IngestResources(served.config))
    assert missing.value.code == "catalog_missing"


async def test_after_the_end_of_its_job_a_token_is_good_for_nothing(container: Container) -> None:
    await runs.cancel(container.served.core, container.run, actor="ann")
    async with container.served.core.db.transaction() as tx:
        await tx.execute("DELETE FROM jobs WHERE group_id = $1", container.run.group_id)
    assert (await container.ask("GET", "inputs")).status_code == 403
    assert await container.put("records.jsonl", b"late") == 403


async def test_no_answer_shows_the_key(container: Container) -> None:
    grace = container.served
    assert grace.clients is not None
    await grace.clients.token("olga", "ops")
    answer = await (await grace.client("olga")).get(f"/api/ingest/runs/{container.run.id}")
    assert answer.status_code == 200
    assert container.token not in answer.text
    assert "transfer" not in answer.text
    assert "transfer_key" not in repr(container.run)
