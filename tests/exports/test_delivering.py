"""What lies at a destination is anybody's, and its store may fail: whatever it is, it ends in a sentence."""

import asyncio
import socket
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest

from paddock.config import load
from paddock.exports import delivering, taken
from paddock.exports.model import ExportPayload, Target
from paddock.exports.resources import ExportResources
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, StaleAttempt, TransientResourceError
from paddock.jobs.model import AttemptId, JobId, JsonObject
from paddock.jobs.turn import Turn
from paddock.storage import remote
from paddock.storage.drafts import Draft, new_draft_id
from paddock.storage.store import Store
from tests.storage.servers import IDENTITIES, Server, aws_environ, seaweed

FILE = {"name": "some.parquet", "rows": 1, "bytes": 1, "sha256": "0" * 64}


@pytest.fixture
def resources(tmp_path: Path) -> ExportResources:
    (tmp_path / "paddock.toml").write_text('[destinations.lake]\nurl = "lake"\n')
    return ExportResources(load({}, tmp_path))


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        [],
        {"job": None, "files": []},
        {"job": 7, "files": []},
        {"job": "a"},
        {"job": "a", "files": None},
        {"job": "a", "files": {"name": "x"}},
        {"job": "a", "files": ["x"]},
        {"job": "a", "files": [FILE, {"rows": 1}]},
        {"job": "a", "files": [{"name": ["x"]}]},
    ],
)
async def test_a_manifest_that_only_looks_like_ours_is_refused(
    resources: ExportResources, tmp_path: Path, manifest: Any
) -> None:
    folder = tmp_path / "lake" / "orders"
    folder.mkdir(parents=True)
    (folder / "_manifest.json").write_bytes(orjson.dumps(manifest))

    with pytest.raises(PermanentRunnerError) as refused:
        await delivering.check(Target(name="lake", prefix="orders", if_exists="replace"), resources)
    assert refused.value.code == "destination_not_ours"


async def test_a_used_destination_is_an_error_unless_it_is_to_be_replaced(
    resources: ExportResources, tmp_path: Path
) -> None:
    """Whatever the control plane could see when the export was asked for."""
    folder = tmp_path / "lake" / "orders"
    folder.mkdir(parents=True)
    (folder / "some.parquet").touch()

    with pytest.raises(PermanentRunnerError) as refused:
        await delivering.check(Target(name="lake", prefix="orders"), resources)
    assert refused.value.code == "destination_not_empty"


async def test_a_control_plane_that_cannot_look_leaves_it_to_the_job(
    s3_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environ.items():
        monkeypatch.setenv(name, value)
    resources, target = on_s3(s3_server, tmp_path), Target(name="lake", prefix="orders")
    monkeypatch.setattr(taken, "LOOK_SECONDS", 60)
    await resources.destination("lake").put("orders/x", b"")
    assert (await taken._look(target, resources.config)).used

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrongsecret")
    assert not (await taken._look(target, resources.config)).used
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(taken, "LOOK_SECONDS", 0.2)
        # Its thread ends with it.
        monkeypatch.setitem(remote.CLIENT, "timeout", timedelta(milliseconds=300))
        monkeypatch.setitem(remote.RETRY, "retry_timeout", timedelta(milliseconds=300))
        assert not (await taken._look(target, resources.config)).used


async def test_ours_may_be_replaced(resources: ExportResources, tmp_path: Path) -> None:
    folder = tmp_path / "lake" / "orders"
    folder.mkdir(parents=True)
    (folder / "_manifest.json").write_bytes(orjson.dumps({"job": "a", "files": [FILE]}))

    await delivering.check(Target(name="lake", prefix="orders", if_exists="replace"), resources)


class Fence:
    """Accepts every save, until the job has moved on."""

    moved_on = False

    async def save(self, state: JsonObject, *, progress: bool) -> None:
        if self.moved_on:
            raise StaleAttempt

    def save_blocking(self, state: JsonObject, *, progress: bool) -> None:
        raise NotImplementedError

    def report(self, progress: JsonObject) -> None:
        pass

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        raise NotImplementedError


async def decided(
    resources: ExportResources, fence: Fence, *, time: int = 1, if_exists: str = "error"
) -> Turn[ExportPayload]:
    """A turn whose draft is sealed, with three files."""
    draft = Draft(resources.store, "ada/exports", new_draft_id())
    for number in range(3):
        file = resources.scratch.new()
        file.write(bytes(1000))
        await draft.add(file, f"part-{number}.parquet")
    sealed = await draft.seal({})
    result = {"rows": 0, "bytes": sealed.bytes, "manifest": sealed.manifest, "sha256": sealed.sha256}
    target = Target.model_validate({"name": "lake", "prefix": "daily", "if_exists": if_exists})
    return Turn(
        id=JobId(UUID(f"00000000-000{time}-7000-8000-000000000000")),
        attempt_id=AttemptId(UUID(int=1)),
        kind="export",
        payload=ExportPayload(engine="x", sql="SELECT 1", output="ada/exports", destination=target),
        saved={"draft": draft.id, "sealed": result},
        owner="ada",
        link=fence,
    )


def on_s3(server: Server, tmp_path: Path) -> ExportResources:
    (tmp_path / "paddock.toml").write_text(f'[destinations.lake]\nurl = "{server.url}/{tmp_path.name}"\n')
    return ExportResources(load({}, tmp_path))


async def failure(turn: Turn[ExportPayload], resources: ExportResources) -> InfrastructureError:
    with pytest.raises(InfrastructureError) as failed:
        await delivering.deliver(turn, resources)
    return failed.value


async def test_a_destination_that_may_not_be_written_is_said_to_refuse(
    s3_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in aws_environ(s3_server.endpoint, IDENTITIES["reader"][0], "reader").items():
        monkeypatch.setenv(name, value)
    resources = on_s3(s3_server, tmp_path)

    problem = await failure(await decided(resources, Fence()), resources)

    assert isinstance(problem, PermanentRunnerError)
    assert problem.code == "store_denied"


@pytest.mark.slow
async def test_a_destination_that_goes_away_is_waited_for_as_long_as_for_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_to = Store.copy_to
    with seaweed() as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        resources = on_s3(server, tmp_path)
        turn = await decided(resources, Fence())

        async def away(*arguments: Any) -> None:
            server.kill()
            await copy_to(*arguments)

        monkeypatch.setattr(Store, "copy_to", away)
        problem = await failure(turn, resources)

    assert isinstance(problem, TransientResourceError)
    assert (problem.code, problem.budget) == ("store_unavailable", "cluster")


async def cleaned_up(turn: Turn[ExportPayload], resources: ExportResources) -> int:
    """To its end, however often it wants to wait: how often that is."""
    waits = 0
    while (waiting := await delivering.undo(turn, resources)) is not None:
        assert waiting.delay > timedelta(0)
        assert waiting.saved is not None
        turn.saved = waiting.saved
        waits += 1
    return waits


async def there(resources: ExportResources) -> tuple[str | None, set[str], set[str]]:
    """The job whose manifest stands at the destination, the files that it names, and all files."""
    store = resources.destination("lake")
    found = {entry.key.removeprefix("daily/") async for entry in store.list("daily", unfinished=True)}
    if "_manifest.json" not in found:
        return None, set(), found
    manifest = orjson.loads(await store.read("daily/_manifest.json"))
    return manifest["job"], {file["name"] for file in manifest["files"]}, found - {"_manifest.json"}


@pytest.fixture(params=["folder", "s3"])
def somewhere(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExportResources:
    if request.param == "folder":
        made: ExportResources = request.getfixturevalue("resources")
        return made
    server: Server = request.getfixturevalue("s3_server")
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    return on_s3(server, tmp_path)


class Slow:
    """A store's next request for a manifest, which takes until the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._replace = Store.replace
        self.sent, self.may_land = asyncio.Event(), asyncio.Event()

        async def replace(store: Store, *arguments: Any) -> bool:
            monkeypatch.setattr(Store, "replace", self._replace)
            self.sent.set()
            await self.may_land.wait()
            return await self._replace(store, *arguments)

        monkeypatch.setattr(Store, "replace", replace)


async def test_a_manifest_that_comes_while_a_cleanup_waits_finds_its_files(
    somewhere: ExportResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    lost = await decided(somewhere, Fence())
    delivery = asyncio.create_task(delivering.deliver(lost, somewhere))
    await slow.sent.wait()

    waiting = await delivering.undo(lost, somewhere)
    assert waiting is not None
    assert waiting.saved is not None
    lost.saved = waiting.saved
    slow.may_land.set()
    await delivery
    assert await cleaned_up(lost, somewhere) == 0

    job, named, found = await there(somewhere)
    assert (job, named) == (str(lost.id), found)
    assert len(found) == 3


@pytest.mark.parametrize("moment", ["after it", "before it deletes"])
async def test_a_manifest_that_comes_after_a_cleanup_is_taken_back(
    somewhere: ExportResources, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Its worker slept through the lease, and through all that the cleanup waited for."""
    slow, fence = Slow(monkeypatch), Fence()
    sleeper = await decided(somewhere, fence)
    delivery = asyncio.create_task(delivering.deliver(sleeper, somewhere))
    await slow.sent.wait()
    cleanup = copy_of(sleeper)
    fence.moved_on = True
    delete = Store.delete

    async def land_first(store: Store, keys: Iterable[str]) -> None:
        monkeypatch.setattr(Store, "delete", delete)
        slow.may_land.set()
        with pytest.raises(StaleAttempt):
            await delivery
        await delete(store, keys)

    if moment == "before it deletes":
        monkeypatch.setattr(Store, "delete", land_first)
    assert await cleaned_up(cleanup, somewhere) == 1
    slow.may_land.set()
    with pytest.raises(StaleAttempt):
        await delivery

    assert await there(somewhere) == (None, set(), set())


async def test_a_manifest_that_comes_late_is_turned_away_where_one_stood_before(
    somewhere: ExportResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to wait for it, and nobody has to be alive when it comes."""
    earlier = await decided(somewhere, Fence(), time=1)
    await delivering.deliver(earlier, somewhere)
    before = await there(somewhere)
    slow = Slow(monkeypatch)
    lost = await decided(somewhere, Fence(), time=2, if_exists="replace")
    delivery = asyncio.create_task(delivering.deliver(lost, somewhere))
    await slow.sent.wait()

    assert await cleaned_up(copy_of(lost), somewhere) == 0
    slow.may_land.set()
    with pytest.raises(TransientResourceError) as refused:
        await delivery

    assert refused.value.code == "destination_changed"
    assert await there(somewhere) == before
    assert before[0] == str(earlier.id)


async def test_an_attempt_that_was_lost_leaves_the_manifest_to_its_heir(
    somewhere: ExportResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fence = Slow(monkeypatch), Fence()
    lost = await decided(somewhere, fence)
    delivery = asyncio.create_task(delivering.deliver(lost, somewhere))
    await slow.sent.wait()
    heir = copy_of(lost)
    fence.moved_on = True
    slow.may_land.set()
    with pytest.raises(StaleAttempt):
        await delivery

    await delivering.deliver(heir, somewhere)

    job, named, found = await there(somewhere)
    assert (job, named) == (str(lost.id), found)
    assert len(found) == 3


def copy_of(turn: Turn[ExportPayload]) -> Turn[ExportPayload]:
    """The same job in other hands, with what was saved of it."""
    return Turn(
        id=turn.id,
        attempt_id=AttemptId(UUID(int=2)),
        kind=turn.kind,
        payload=turn.payload,
        saved=turn.saved,
        owner=turn.owner,
        link=Fence(),
    )


@pytest.mark.parametrize("earlier", [True, False])
async def test_a_manifest_that_comes_late_does_not_replace_a_later_one(
    earlier: bool, somewhere: ExportResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence was asked, then the request took longer than the lease: its job was cancelled and cleaned up after, and
    another one delivered to the same place."""
    resources = somewhere
    if earlier:
        await delivering.deliver(await decided(resources, Fence(), time=1), resources)
    late = await decided(resources, Fence(), time=2, if_exists="replace")
    later = await decided(resources, Fence(), time=3, if_exists="replace")
    replace = Store.replace

    async def slow(store: Store, *arguments: Any) -> bool:
        monkeypatch.setattr(Store, "replace", replace)
        await cleaned_up(late, resources)
        await delivering.deliver(later, resources)
        return await replace(store, *arguments)

    monkeypatch.setattr(Store, "replace", slow)
    problem = await failure(late, resources)

    assert (type(problem), problem.code) == (TransientResourceError, "destination_changed")
    assert (await there(resources))[0] == str(later.id)
    assert (await failure(late, resources)).code == "destination_superseded"
