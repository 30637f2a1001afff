"""What must be true after every step: the database is what the model says, and the invariants hold by themselves.

The second part needs no model, so that an error made twice, in the core and in the model, is still seen.
"""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tests.properties.kinds import BY_NAME
from tests.properties.model import Model, cleanup_wanted, everything, recounted
from tests.properties.rows import Live, Snapshot

CLOSE = timedelta(milliseconds=1)


def recognise(model: Model, snapshot: Snapshot) -> None:
    """Gives the rows the model foretold the ids the database gave them."""
    strangers = sorted(set(snapshot.live) - set(model.live) - set(model.ended))
    foretold = sorted(model.fresh, key=_looks)
    found = sorted((snapshot.live[id] for id in strangers), key=_looks)
    looks = [_looks(row) for row in found], [_looks(row) for row in foretold]
    assert looks[0] == looks[1], f"new rows {looks[0]}, foretold {looks[1]}"
    for row, like in zip(found, foretold, strict=True):
        like.id = row.id
        model.live[row.id] = like
    model.fresh = []


def _looks(row: Live) -> tuple[str, ...]:
    return tuple(map(str, (row.kind, row.owner, row.cleanup_of, row.parent_id, row.priority, row.lock_key)))


def check_model(model: Model, snapshot: Snapshot) -> None:
    recognise(model, snapshot)
    _same_rows("live", model.live, snapshot.live)
    _same_rows("ended", model.ended, snapshot.ended)
    _same_rows("groups", model.groups, snapshot.groups)
    assert sorted(model.events) == snapshot.events, "I6: an event or delivery too many or missing"
    assert sorted(model.end_hooks) == snapshot.end_hooks
    for id, session in model.sessions.items():
        assert snapshot.sessions[id] == session.expires_at
    for id, old in snapshot.ended.items():
        model.ended[id].print = old.print


def _same_rows(what: str, expected: dict[UUID, Any], found: dict[UUID, Any]) -> None:
    assert expected.keys() == found.keys(), f"{what}: {set(expected) ^ set(found)}"
    for id, row in expected.items():
        if row == found[id]:
            continue
        ours, theirs = asdict(row), asdict(found[id])
        wrong = {
            name: (ours[name], theirs[name])
            for name in ours
            if not _same(ours[name], theirs[name]) and not (name == "print" and ours[name] is None)
        }
        assert not wrong, f"{what} {row.kind if hasattr(row, 'kind') else ''} {id}: (model, database) {wrong}"


def _same(ours: object, theirs: object) -> bool:
    if isinstance(ours, datetime) and isinstance(theirs, datetime):
        return abs(ours - theirs) < CLOSE
    if isinstance(ours, float | int) and isinstance(theirs, float | int):
        return abs(ours - theirs) < 0.001
    return ours == theirs


def check_invariants(model: Model, snapshot: Snapshot) -> None:
    live, ended = list(snapshot.live.values()), snapshot.ended
    assert snapshot.ends == len(ended), "I1: a job ended twice"
    assert not snapshot.live.keys() & ended.keys(), "I1: a job is live and ended"
    for id, known in model.ended.items():
        assert known.print in (None, ended[id].print), f"I1: ended job {id} changed"
    gone = (model.live.keys() | model.ended.keys()) - snapshot.live.keys() - ended.keys()
    assert not gone, f"I2: lost {gone}"

    locks = [row.lock_key for row in live if row.lock_key is not None]
    assert len(locks) == len(set(locks)), "I5: a lock with two holders"
    assert all((row.attempt_id is not None) == (row.status == "claimed") for row in live)
    serial = [row.kind for row in live if row.serial and row.attempt_id is not None]
    assert len(serial) == len(set(serial)), "two of a serial kind are claimed"
    for row in live:
        policy = BY_NAME[row.kind].retry
        assert row.failure_count <= policy.limit
        assert row.cluster_count <= policy.cluster_limit
        assert row.lost_count <= policy.loss_limit

    _check_groups(snapshot)
    _check_cleanups(snapshot)
    subjects = [(type, subject) for type, subject, _ in snapshot.events]
    assert len(subjects) == len(set(subjects)), "I6: an event was recorded twice"
    told = sum(len(webhooks) for _, _, webhooks in snapshot.events)
    assert told == len(snapshot.deliveries)
    known_jobs = snapshot.live.keys() | ended.keys()
    assert snapshot.deliveries <= known_jobs, "I6: a delivery without its job"
    deliveries = {row.id for row in everything(snapshot.live, ended) if row.kind == "webhook" and row.retry_of is None}
    assert snapshot.deliveries == deliveries, "I6: a delivery of no event"
    for type, subject, _ in snapshot.events:
        if type.startswith("job."):
            assert ended[UUID(subject)].status == type.removeprefix("job."), "I6: an event of what is not so"


def _check_groups(snapshot: Snapshot) -> None:
    for id, counts in recounted(snapshot).items():
        group = snapshot.groups[id]
        assert (group.open, group.failed, group.cancelled, group.total) == counts, f"I4: group {id} counts wrongly"
        assert group.ended == (group.sealed and group.open == 0), f"I4: group {id} ended: {group.ended}"
        assert not group.ended or group.hook_due or group.hook_runs, f"I4: the hook of group {id} was left out"


def _check_cleanups(snapshot: Snapshot) -> None:
    cleanups = [row.cleanup_of for row in everything(snapshot.live, snapshot.ended) if row.cleanup_of]
    assert len(cleanups) == len(set(cleanups)), "a job is cleaned up twice"
    wanted = {old.id for old in snapshot.ended.values() if cleanup_wanted(old)}
    assert set(cleanups) == wanted, "a cleanup too many or missing"
    for row in snapshot.live.values():
        if row.cleanup_of is not None:
            assert row.lock_key == snapshot.ended[row.cleanup_of].lock_key, "I5: the lock was not passed on"
