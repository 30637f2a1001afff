"""`paddock ingest try`: the steps of a source in this process, without a server. They are the handlers that workers run, with
a store in a folder that goes afterwards."""

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from paddock.cli.errors import FAILED, CommandFailed
from paddock.config import load
from paddock.ingest import fetching, hooking, records
from paddock.ingest.downloading import SAMPLE
from paddock.ingest.model import BatchPayload, Fetched, FetchPayload, Hooked, Published
from paddock.ingest.resources import IngestResources
from paddock.ingest.source_settings import runtime_of, sources_from
from paddock.jobs.errors import InfrastructureError
from paddock.jobs.model import AttemptId, JobId, JsonObject
from paddock.jobs.outcomes import Done, Outcome
from paddock.jobs.turn import Turn
from paddock.storage.drafts import read_manifest

SHOWN = 5


class Printing:
    """What a turn says goes to the terminal, and nothing is saved."""

    async def save(self, state: JsonObject, *, progress: bool) -> None:
        pass

    def save_blocking(self, state: JsonObject, *, progress: bool) -> None:
        pass

    def report(self, progress: JsonObject) -> None:
        pass

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        sys.stderr.write(f"  | {message}\n")


def try_here(source: str, hook: str | None, limit: int) -> int:
    with tempfile.TemporaryDirectory(prefix="paddock-try-") as folder:
        place = Path(folder)
        config = load(overrides={"object_store": str(place / "objects"), "scratch": str(place / "scratch")})
        known = sources_from(config)
        if source not in known:
            there = f"There are: {', '.join(sorted(known))}." if known else "There is none."
            raise CommandFailed(f"paddock.toml has no source '{source}'. {there}")
        hooks = known[source].hooks
        if hook is not None and hook not in hooks:
            raise CommandFailed(f"The source '{source}' has no hook '{hook}'. It has: {', '.join(hooks) or 'none'}.")
        if runtime_of(config, known[source]) == "kubernetes":
            raise CommandFailed(
                f"The source '{source}' runs on Kubernetes, and `try` runs commands on this machine.",
                hint='Set runtime = "local" for it here, with a command, and secrets by env or file.',
            )
        resources = IngestResources(config)
        wanted = hooks if hook is None else hooks[: hooks.index(hook) + 1]
        resources.sources[source] = known[source].model_copy(update={"hooks": wanted})
        try:
            return asyncio.run(_steps(resources, source, limit))
        except InfrastructureError as problem:
            raise CommandFailed(f"{problem.message} [{problem.code}]", hint=problem.hint) from None


async def _steps(resources: IngestResources, source: str, limit: int) -> int:
    run_id = str(uuid4())
    payload = FetchPayload(run_id=run_id, source=source, batch=0, batch_size=limit, limit=limit)
    result = _result(await fetching.run(turn_of(payload), resources))
    fetched = Fetched.model_validate(result)
    count = sum(batch.records for batch in fetched.batches)
    sys.stdout.write(
        f"The ingester gave {count:,} records and says that there is {'more' if fetched.has_more else 'no more'}.\n"
    )
    for batch in fetched.batches:
        step = BatchPayload(
            run_id=run_id,
            source=source,
            batch=0,
            manifest=batch.manifest,
            sha256=batch.sha256,
            fetched_at=datetime.now(UTC),
        )
        hooked = Hooked.model_validate(_result(await hooking.run(turn_of(step), resources)))
        for one in hooked.hooks:
            sys.stdout.write(
                f"The hook '{one['hook']}' passed {one['passed']:,}, rejected {one['rejected']:,} and could not do {one['errors']:,}.\n"
            )
        await _show(resources, hooked)
        if resources.source(source).columns:
            await _check_columns(
                resources, step.model_copy(update={"manifest": hooked.manifest, "sha256": hooked.sha256})
            )
    return 0 if fetched.batches or not fetched.has_more else FAILED


async def _show(resources: IngestResources, hooked: Hooked) -> None:
    manifest = await read_manifest(resources.store, hooked.manifest, hooked.sha256)
    for part in manifest.files:
        lines = (await resources.store.read(manifest.key(part))).split(b"\n")[:-1]
        title = "passed" if part.name == records.RECORDS else "left out"
        for line in lines[:SHOWN]:
            shown = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            shown.pop("position", None)
            sys.stdout.write(f"{title}: {records.ENCODER.encode(shown).decode()}\n")
        if len(lines) > SHOWN:
            sys.stdout.write(f"{title}: … {len(lines) - SHOWN:,} more\n")


async def _check_columns(resources: IngestResources, step: BatchPayload) -> None:
    """Which records do not fit the declared columns shows only where they are published: in the folder that goes afterwards."""
    from paddock.ingest import publishing

    found = Published.model_validate(_result(await publishing.run(turn_of(step), resources)))
    manifest = await read_manifest(resources.store, found.manifest, found.sha256)
    misfits = [
        one
        for part in manifest.files
        if part.name == SAMPLE
        for line in (await resources.store.read(manifest.key(part))).split(b"\n")[:-1]
        if not (one := records.decode_left_out(line)).hook
    ]
    for one in misfits[:SHOWN]:
        sys.stdout.write(f"The record '{one.id}' does not fit its columns: {one.reason}\n")
    sys.stdout.write(f"{found.rows:,} records fit the declared columns.\n")


def turn_of(payload: Any) -> Turn[Any]:
    return Turn(
        id=JobId(uuid4()),
        attempt_id=AttemptId(uuid4()),
        kind="try",
        payload=payload,
        saved=None,
        owner="you",
        link=Printing(),
    )


def _result(outcome: Outcome) -> Any:
    if isinstance(outcome, Done):
        return outcome.result
    error = getattr(outcome, "error", None)
    if error is None:
        raise CommandFailed("The step did not end.")
    raise CommandFailed(f"{error.message} [{error.code}]", hint=error.hint)
