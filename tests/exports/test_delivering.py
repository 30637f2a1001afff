"""What lies at a destination is anybody's, and its store may fail: whatever it is, it ends in a sentence."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest

from paddock.config import load
from paddock.exports import delivering
from paddock.exports.model import ExportPayload, Target
from paddock.exports.workshop import Workshop
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.jobs.model import AttemptId, JobId, JsonObject
from paddock.jobs.turn import Turn
from paddock.storage.drafts import Draft, new_draft_id
from paddock.storage.store import Store
from tests.storage.servers import IDENTITIES, Server, aws_environ, seaweed
from tests.storage.servers import s3_server as s3_server

FILE = {"name": "some.parquet", "rows": 1, "bytes": 1, "sha256": "0" * 64}


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    (tmp_path / "paddock.toml").write_text('[destinations.lake]\nurl = "lake"\n')
    return Workshop(load({}, tmp_path))


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
    workshop: Workshop, tmp_path: Path, manifest: Any
) -> None:
    folder = tmp_path / "lake" / "orders"
    folder.mkdir(parents=True)
    (folder / "_manifest.json").write_bytes(orjson.dumps(manifest))

    with pytest.raises(PermanentRunnerError) as refused:
        await delivering.check(Target(name="lake", prefix="orders", if_exists="replace"), workshop)
    assert refused.value.code == "destination_not_ours"


async def test_ours_may_be_replaced(workshop: Workshop, tmp_path: Path) -> None:
    folder = tmp_path / "lake" / "orders"
    folder.mkdir(parents=True)
    (folder / "_manifest.json").write_bytes(orjson.dumps({"job": "a", "files": [FILE]}))

    await delivering.check(Target(name="lake", prefix="orders", if_exists="replace"), workshop)


class Fence:
    """Accepts every save."""

    async def save(self, state: JsonObject, *, progress: bool) -> None:
        pass

    def save_blocking(self, state: JsonObject, *, progress: bool) -> None:
        raise NotImplementedError

    def report(self, progress: JsonObject) -> None:
        pass

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        raise NotImplementedError


async def decided(workshop: Workshop, fence: Fence, *, time: int = 1, if_exists: str = "error") -> Turn[ExportPayload]:
    """A turn whose draft is sealed, with three files."""
    draft = Draft(workshop.store, "ada/exports", new_draft_id())
    for number in range(3):
        file = workshop.scratch.new()
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


def on_s3(server: Server, tmp_path: Path) -> Workshop:
    (tmp_path / "paddock.toml").write_text(f'[destinations.lake]\nurl = "{server.url}/{tmp_path.name}"\n')
    return Workshop(load({}, tmp_path))


async def failure(turn: Turn[ExportPayload], workshop: Workshop) -> InfrastructureError:
    with pytest.raises(InfrastructureError) as failed:
        await delivering.deliver(turn, workshop)
    return failed.value


async def test_a_destination_that_may_not_be_written_is_said_to_refuse(
    s3_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in aws_environ(s3_server.endpoint, IDENTITIES["reader"][0], "reader").items():
        monkeypatch.setenv(name, value)
    workshop = on_s3(s3_server, tmp_path)

    problem = await failure(await decided(workshop, Fence()), workshop)

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
        workshop = on_s3(server, tmp_path)
        turn = await decided(workshop, Fence())

        async def away(*arguments: Any) -> None:
            server.kill()
            await copy_to(*arguments)

        monkeypatch.setattr(Store, "copy_to", away)
        problem = await failure(turn, workshop)

    assert isinstance(problem, TransientResourceError)
    assert (problem.code, problem.budget) == ("store_unavailable", "cluster")


@pytest.mark.parametrize("place", ["folder", "s3"])
@pytest.mark.parametrize("earlier", [True, False])
async def test_a_manifest_that_comes_late_does_not_replace_a_later_one(
    place: str,
    earlier: bool,
    workshop: Workshop,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fence was asked, then the request took longer than the lease: its job was cancelled and cleaned up after, and
    another one delivered to the same place."""
    if place == "s3":
        server: Server = request.getfixturevalue("s3_server")
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        workshop = on_s3(server, tmp_path)
    if earlier:
        await delivering.deliver(await decided(workshop, Fence(), time=1), workshop)
    late = await decided(workshop, Fence(), time=2, if_exists="replace")
    later = await decided(workshop, Fence(), time=3, if_exists="replace")
    replace = Store.replace

    async def slow(store: Store, *arguments: Any) -> bool:
        monkeypatch.setattr(Store, "replace", replace)
        await delivering.undo(late, workshop)
        await delivering.deliver(later, workshop)
        return await replace(store, *arguments)

    monkeypatch.setattr(Store, "replace", slow)
    problem = await failure(late, workshop)

    assert (type(problem), problem.code) == (TransientResourceError, "destination_changed")
    there = workshop.destination("lake")
    assert orjson.loads(await there.read("daily/_manifest.json"))["job"] == str(later.id)
    assert (await failure(late, workshop)).code == "destination_superseded"
