"""A step on a cluster whose outputs arrived before its worker was killed: they count, and its Job goes."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from paddock.ingest import fetching, on_cluster
from paddock.ingest.backpressure import Seen
from paddock.ingest.model import BatchPayload, Fetched, FetchPayload, prefix_of_step
from paddock.ingest.resources import IngestResources
from paddock.ingest.transfer_files import Step, piece_name
from paddock.ingest.trying import turn_of
from paddock.jobs.errors import TransientResourceError
from paddock.jobs.outcomes import Again, Done
from paddock.jobs.turn import Turn
from paddock.runtimes.kubernetes.errors import ApiError
from paddock.storage.drafts import Draft, DraftFile, new_draft_id
from tests.ingest.conftest import SEVENS, Bench

FETCHED = {"records.jsonl": b'{"id": 1, "data": {"n": 1}}\n', "session.json": b'{"session": 1, "has_more": false}'}


@dataclass
class Played:
    """What the cluster is asked for; `full`: it has no place."""

    waited_for: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    away: bool = False
    full: bool = False


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    found = Played()

    async def wait(step: str, tell: Any) -> bool:
        tell(Seen(1, 1))
        return not found.full

    queue = SimpleNamespace(wait=wait, leave=lambda step: None)

    async def cluster_of(*_: object) -> Any:
        return SimpleNamespace(namespace="steps", jobs=None, queue=queue)

    async def clean(turn: Turn[Any], namespace: str, cluster: object) -> bool:
        if found.away:
            raise ApiError(None, {"message": "away"}, verb="delete", what="jobs")
        found.removed.append(turn.saved["container"]["name"])
        return False

    async def run(turn: Turn[Any], *_: object) -> None:
        found.waited_for.append(turn.saved["container"]["name"])

    monkeypatch.setattr(on_cluster, "cluster_of", cluster_of)
    monkeypatch.setattr(on_cluster, "clean_container", clean)
    monkeypatch.setattr(on_cluster, "run_container", run)
    monkeypatch.setattr(on_cluster, "_spec", lambda *_: None)
    return found


async def sealed(given: IngestResources, payload: FetchPayload | BatchPayload, step: Step, **files: bytes) -> str:
    draft = Draft(given.store, prefix_of_step(payload.source, payload.run_id, payload.batch, step), new_draft_id())
    for name, content in files.items():
        piece = piece_name(name, 0)
        await given.store.put(f"{draft.prefix}/{piece}", content)
        await draft.adopt(DraftFile(piece, 0, len(content), hashlib.sha256(content).hexdigest(), {"of": name}))
    await draft.seal({"empty": []})
    return draft.id


def killed(payload: Any, draft: str, *, over: bool) -> Turn[Any]:
    turn = turn_of(payload)
    turn.saved = {"transfer": draft, "container": {"name": "ingest-1", "over": over}}
    return turn


@pytest.mark.parametrize(("over", "waited"), [(True, []), (False, ["ingest-1"])])
async def test_the_job_of_a_fetch_goes(bench: Bench, played: Played, over: bool, waited: Sequence[str]) -> None:
    """One that had not ended is waited for: its log is still to be read."""
    bench.source("numbers")
    given = IngestResources(bench.config)
    payload = FetchPayload(run_id=str(uuid4()), source="numbers", batch=0, batch_size=10)
    turn = killed(payload, await sealed(given, payload, "fetch", **FETCHED), over=over)
    outcome = await on_cluster.run_ingester(turn, given)
    assert isinstance(outcome, Done)
    assert sum(batch.records for batch in Fetched.model_validate(outcome.result).batches) == 1
    assert (played.waited_for, played.removed) == (waited, ["ingest-1"])


async def test_the_job_of_a_hook_goes_before_its_name_is_forgotten(bench: Bench, played: Played) -> None:
    bench.hook("sevens", SEVENS)
    bench.source("numbers", config={"total": 1}, hooks=["sevens"])
    given = IngestResources(bench.config)
    fetch = FetchPayload(run_id=str(uuid4()), source="numbers", batch=0, batch_size=10)
    outcome = await fetching.run(turn_of(fetch), given)
    assert isinstance(outcome, Done)
    [batch] = Fetched.model_validate(outcome.result).batches
    places: Any = {"manifest": batch.manifest, "sha256": batch.sha256, "fetched_at": datetime.now(UTC)}
    payload = BatchPayload(run_id=fetch.run_id, source="numbers", batch=0, **places)
    passed = {"features.jsonl": b'{"id": 1, "features": {}}\n'}
    turn = killed(payload, await sealed(given, payload, "hooks", **passed), over=True)

    played.away = True
    with pytest.raises(TransientResourceError):
        await on_cluster.run_hooks(turn, given)
    assert turn.saved["container"]["name"] == "ingest-1", "the next try knows it still"
    played.away = False
    assert isinstance(await on_cluster.run_hooks(turn, given), Done)
    assert (played.removed, "container" in turn.saved) == (["ingest-1"], False)


async def test_how_long_a_step_waits_for_the_cluster_is_counted_over_its_turns(
    bench: Bench, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.source("numbers")
    given = IngestResources(bench.config)
    payload = FetchPayload(run_id=str(uuid4()), source="numbers", batch=0, batch_size=10)
    played.full = True
    told: list[Any] = []
    first = turn_of(payload)
    monkeypatch.setattr(first._link, "report", told.append)
    outcome = await on_cluster.run_ingester(first, given)
    assert isinstance(outcome, Again)
    second = turn_of(payload)
    assert outcome.saved is not None
    second.saved = outcome.saved
    monkeypatch.setattr(second._link, "report", told.append)
    assert isinstance(await on_cluster.run_ingester(second, given), Again)
    since = [report["since"] for report in told if "since" in report]
    assert len(since) == 2
    assert len(set(since)) == 1
