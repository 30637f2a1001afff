"""From the managed store to a destination, only ever forward.

The job saved the manifest of its sealed draft: that was the decision. From then on every turn does the same steps, each
safe to repeat: copy the files under names that carry the job's id, write `_manifest.json` last, then take away what the
manifest before it named. Whoever reads the destination's manifest sees the old files or the new ones, whole.
The list of what goes is kept beside the draft before the old manifest is written over: a kill in between loses nothing.

The manifest is the one effect here that no fence guards: a worker may have lost its job without knowing, and a cleanup
deleted its copies. So
- the fence is asked right before, and with the answer is saved that a manifest is on its way;
- the store takes the manifest only over the one that the turn began with, and a cleanup changes that one first;
- where there is none to change, a cleanup waits longer than a request may take before it deletes what a manifest that
  is still to come would name, and looks once more afterwards;
- whoever put a manifest asks the fence again, and takes it back if its copies are gone.
What is left, at a destination without a manifest before: a request that its sender did not live to see answered, and that the
store carries out after `REQUEST_LASTS`. And a store that knows no conditions.
"""

import asyncio
from collections.abc import Iterable, Set
from datetime import timedelta

import orjson

from paddock.exports.model import ExportPayload, Target
from paddock.exports.resources import ExportResources
from paddock.jobs.errors import PermanentRunnerError, StaleAttempt, TransientResourceError
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Again, Outcome, again, done
from paddock.jobs.turn import Turn
from paddock.storage.drafts import Manifest, read_manifest
from paddock.storage.store import Seen, Store
from paddock.storage.together import together

MANIFEST = "_manifest.json"
PREVIOUS = "_previous.json"
COPIES_AT_ONCE = 4
# An id begins with the milliseconds in which it was made; what follows has no order.
TIME_OF_ID = 13
# Twice as long as `paddock.storage.remote` tries for.
REQUEST_LASTS = timedelta(minutes=2)


async def check(target: Target, resources: ExportResources) -> None:
    """Before the query runs: a destination that would refuse the files is known now, not an hour later."""
    store = resources.destination(target.name)
    found = await _names(store, target.prefix, most=1)
    if not found:
        return
    if target.if_exists == "error":
        raise PermanentRunnerError(
            f"The destination {target.key} holds files already.",
            code="destination_not_empty",
            hint="Choose another prefix ({date} makes one for each day), or if_exists: replace.",
        )
    await _previous(store, target, await _read_manifest(store, target))


async def deliver(turn: Turn[ExportPayload], resources: ExportResources) -> Outcome:
    target, result = turn.payload.destination, turn.saved["sealed"]
    assert target is not None
    there = resources.destination(target.name)
    manifest = await read_manifest(resources.store, result["manifest"], result["sha256"])
    turn.report(phase="copying to the destination", rows=result["rows"], bytes=result["bytes"])
    names = _new_names(str(turn.id), manifest)
    draft = result["manifest"].rpartition("/")[0]
    seen = await there.seen(_key(target))
    found = _parsed(seen, target)
    if not _is_of(found, str(turn.id)):
        _check_not_superseded(turn, found, target)
        await _remove_unfinished(there, target, names)
        previous = await _previous(there, target, found, set(names.values()))
        await resources.store.put(f"{draft}/{PREVIOUS}", orjson.dumps(previous))
        await _copy(resources.store, draft, there, target, names)
        try:
            await _publish(turn, there, target, _manifest(turn, manifest, names), seen)
            await turn.save(turn.saved, progress=False)
        except (StaleAttempt, asyncio.CancelledError):
            await _take_back(there, target, str(turn.id), names.values())
            raise
    await _remove_previous(resources.store, draft, there, target, keep=set(names.values()))
    return done({**result, "destination": target.key})


def _new_names(job: str, manifest: Manifest) -> dict[str, str]:
    """Where each file goes; folders of partitions are kept."""
    names = {}
    for number, part in enumerate(manifest.files):
        folder, slash, name = part.name.rpartition("/")
        # What an engine wrote itself is Parquet, whatever it is called.
        suffix = name.partition(".")[2] or "parquet"
        names[part.name] = f"{folder}{slash}{job}-{number}.{suffix}"
    return names


async def _remove_unfinished(there: Store, target: Target, names: dict[str, str]) -> None:
    """Half a file that an earlier turn was killed over: who reads whole folders would trip over it."""
    await there.delete_unfinished(f"{target.prefix}/{name}" for name in (*names.values(), MANIFEST))


async def _copy(store: Store, draft: str, there: Store, target: Target, names: dict[str, str]) -> None:
    room = asyncio.Semaphore(COPIES_AT_ONCE)

    async def one(name: str, new: str) -> None:
        async with room:
            size = await store.size(f"{draft}/{name}")
            if size is not None and await there.size(f"{target.prefix}/{new}") == size:
                return
            await store.copy_to(f"{draft}/{name}", there, f"{target.prefix}/{new}")

    await together(one(name, new) for name, new in names.items())


async def _publish(turn: Turn[ExportPayload], there: Store, target: Target, manifest: bytes, seen: Seen | None) -> None:
    await turn.save({**turn.saved, "publishing": True}, progress=False)
    if await there.replace(_key(target), manifest, seen):
        return
    # Our own, where the store's first answer was lost.
    if not _is_of(await _read_manifest(there, target), str(turn.id)):
        raise TransientResourceError(
            f"The manifest at {target.key} was changed by somebody else while the export was being delivered.",
            code="destination_changed",
            hint="Paddock looks at it again, and goes on unless a later export was delivered there.",
        )


async def _take_back(there: Store, target: Target, job: str, names: Iterable[str]) -> None:
    """The job has moved on, or this turn has to end. To another attempt: that one finds the manifest, and it is right.
    To its cleanup: that one looks for a manifest after it deleted the copies, so whoever of the two is later sees the
    other."""
    for name in names:
        if await there.size(f"{target.prefix}/{name}") is None:
            await _remove_manifest(there, target, job)
            return


async def _remove_manifest(there: Store, target: Target, job: str) -> None:
    if _is_of(await _read_manifest(there, target), job):
        await there.delete([_key(target)])


def _manifest(turn: Turn[ExportPayload], manifest: Manifest, names: dict[str, str]) -> bytes:
    files = [
        {**part.facts, "name": names[part.name], "rows": part.rows, "bytes": part.bytes, "sha256": part.sha256}
        for part in manifest.files
    ]
    totals = {"job": str(turn.id), "rows": manifest.rows, "bytes": manifest.bytes, "files": files}
    return orjson.dumps({**manifest.facts, **totals})


def _is_of(found: JsonObject | None, job: str) -> bool:
    """An earlier turn of this very job got as far as the manifest."""
    return found is not None and found["job"] == job


def _check_not_superseded(turn: Turn[ExportPayload], found: JsonObject | None, target: Target) -> None:
    """A worker that stood still past its lease may wake up here, when another has long ended its job and a later job
    delivered to the same place: jobs of one destination follow each other by its lock, and their ids by time."""
    if found is not None and found["job"][:TIME_OF_ID] > str(turn.id)[:TIME_OF_ID]:
        raise PermanentRunnerError(
            f"A later export was delivered to {target.key} already.",
            code="destination_superseded",
            hint="Choose another prefix if the database's clock was set back; else nothing is wrong.",
        )


async def _previous(there: Store, target: Target, found: JsonObject | None, ours: Set[str] = frozenset()) -> list[str]:
    """What the last delivery named. A prefix that Paddock did not write is not ours to replace; `ours` are copies that
    an earlier turn of this job made."""
    if target.if_exists == "error":
        return []
    if found is not None:
        return [file["name"] for file in found["files"]]
    if await _foreign(there, target, ours):
        raise PermanentRunnerError(
            f"The destination {target.key} holds files that Paddock did not write.",
            code="destination_not_ours",
            hint="Empty it, or choose another prefix.",
        )
    return []


async def _foreign(there: Store, target: Target, ours: Set[str]) -> bool:
    found = await _names(there, target.prefix, most=len(ours) + 1)
    return any(name.removeprefix(f"{target.prefix}/") not in ours for name in found)


def _is_manifest(found: object) -> bool:
    """As far as it is read here: anybody may have written it."""
    match found:
        case {"job": str(), "files": [*files]}:
            return all(isinstance(file, dict) and isinstance(file.get("name"), str) for file in files)
        case _:
            return False


async def _read_manifest(there: Store, target: Target) -> JsonObject | None:
    return _parsed(await there.seen(_key(target)), target)


def _key(target: Target) -> str:
    return f"{target.prefix}/{MANIFEST}"


def _parsed(seen: Seen | None, target: Target) -> JsonObject | None:
    if seen is None:
        return None
    try:
        found = orjson.loads(seen.data)
    except orjson.JSONDecodeError:
        found = None
    if not _is_manifest(found):
        raise PermanentRunnerError(
            f"The manifest at {target.key} is not one that Paddock wrote, or was changed since.",
            code="destination_not_ours",
            hint="Move it away, or choose another prefix.",
        )
    manifest: JsonObject = found
    return manifest


async def _remove_previous(store: Store, draft: str, there: Store, target: Target, keep: set[str]) -> None:
    key = f"{draft}/{PREVIOUS}"
    if await store.size(key) is None:
        return
    names = [name for name in orjson.loads(await store.read(key)) if name not in keep and ".." not in name]
    await there.delete([f"{target.prefix}/{name}" for name in names])
    await store.delete([key])


async def undo(turn: Turn[ExportPayload], resources: ExportResources) -> Again | None:
    """After a cancel: copies that no manifest names go; a manifest that is there stays, and rolls forward to its end.
    Again: a manifest may still be on its way."""
    target, result = turn.payload.destination, turn.saved["sealed"]
    assert target is not None
    if await resources.store.size(result["manifest"]) is None:
        return None  # an earlier try of this cleanup got further than that
    there = resources.destination(target.name)
    manifest = await read_manifest(resources.store, result["manifest"], result["sha256"])
    job = str(turn.cleanup_of or turn.id)
    names = _new_names(job, manifest)
    seen = await there.seen(_key(target))
    if _is_of(_parsed(seen, target), job):
        draft = result["manifest"].rpartition("/")[0]
        await _remove_previous(resources.store, draft, there, target, keep=set(names.values()))
        return None
    if turn.saved.get("publishing") and not turn.saved.get("waited"):
        if seen is None:
            return again(REQUEST_LASTS, saved={**turn.saved, "waited": True}, progress=False)
        await _turn_away(there, target, seen)
    await _remove_unfinished(there, target, names)
    await there.delete([f"{target.prefix}/{name}" for name in names.values()])
    await _remove_manifest(there, target, job)
    return None


async def _turn_away(there: Store, target: Target, seen: Seen) -> None:
    """The same manifest, and yet not the one that was seen: nothing that waits to replace that one is taken any more."""
    if not await there.replace(_key(target), seen.data + b"\n", seen):
        raise TransientResourceError(
            f"The manifest at {target.key} changed while a delivery was being taken back.", code="destination_changed"
        )


async def _names(store: Store, prefix: str, *, most: int) -> list[str]:
    found = []
    async for entry in store.list(f"{prefix}/"):
        found.append(entry.key)
        if len(found) >= most:
            break
    return found
