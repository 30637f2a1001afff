"""What the containers of a step may read and write: this step's inputs and its named outputs, in pieces, into the one draft
that its job has saved. A token is good for one step of one batch, and only while the job of that step lives.
"""

import asyncio
import hmac
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import orjson
from pydantic import BaseModel, ConfigDict, Field

from paddock.api.errors import ApiError
from paddock.api.plane import ControlPlane
from paddock.ingest.model import prefix_of_step
from paddock.ingest.pipeline import ON_CLUSTER, RUN_HOOKS, RUN_INGESTER, SQL
from paddock.ingest.source_settings import Hook, Source, hooks_from, sources_from
from paddock.ingest.transfer_files import (
    CATALOG,
    CONFIG,
    HIDDEN,
    OUTPUTS,
    PIECE,
    SESSION,
    STORED,
    TRANSFER,
    Step,
    no_catalog,
    piece_name,
    token_of,
)
from paddock.jobs.errors import InfrastructureError
from paddock.jobs.model import JsonObject
from paddock.storage.drafts import MANIFEST, Draft, DraftFile, read_manifest
from paddock.storage.store import Store, open_managed

KINDS: Mapping[str, str] = {"fetch": RUN_INGESTER + ON_CLUSTER, "hooks": RUN_HOOKS + ON_CLUSTER}


class SealBody(BaseModel):
    """Of each file the pieces: how long each is, and its sum."""

    model_config = ConfigDict(extra="forbid")

    files: dict[str, list[tuple[int, str]]] = Field(max_length=10)


def refused() -> ApiError:
    """The same for whatever is wrong: a stranger learns nothing."""
    return ApiError(403, "transfer_refused", "This token is not good for this step, or its job has ended.")


@dataclass(frozen=True, slots=True)
class Transfer:
    """One step of one batch, by a job that lives."""

    plane: ControlPlane
    store: Store
    source: str
    run: str
    batch: int
    step: Step
    payload: JsonObject
    saved: JsonObject
    session: str | None

    @property
    def prefix(self) -> str:
        return prefix_of_step(self.source, self.run, self.batch, self.step)

    def settings(self) -> Source | Hook:
        """Of the ingester, or of the hook that is next."""
        source = sources_from(self.plane.config).get(self.source)
        if source is None:
            raise ApiError(404, "unknown_source", f"There is no source '{self.source}'.")
        done = len(self.saved.get("hooks", []))
        if self.step == "fetch" or done >= len(source.hooks):
            return source
        return hooks_from(self.plane.config)[source.hooks[done]]

    def inputs(self) -> Sequence[str]:
        settings = self.settings()
        if self.step == "hooks":
            return [CONFIG, STORED]
        catalog = isinstance(settings, Source) and settings.catalog is not None
        return [CONFIG, *([] if self.session is None else [SESSION]), *([CATALOG] if catalog else [])]

    async def input(self, name: str) -> AsyncIterator[bytes]:
        if name not in self.inputs():
            raise ApiError(404, "not_found", f"This step has no input '{name[:100]}'.")
        if name == STORED:
            return await self._stored()
        settings = self.settings()
        if name == SESSION:
            assert self.session is not None
            return _once(self.session.encode())
        if name == CATALOG:
            assert isinstance(settings, Source)
            assert settings.catalog is not None
            try:
                return _once(await asyncio.to_thread(settings.catalog.read_bytes))
            except OSError:
                raise ApiError(404, "catalog_missing", no_catalog(settings.catalog)) from None
        return _once(orjson.dumps(settings.config))

    async def _stored(self) -> AsyncIterator[bytes]:
        """What the step before, or the hook before, let pass."""
        place = self.saved if "manifest" in self.saved else self.payload
        manifest = await read_manifest(self.store, place["manifest"], place["sha256"])
        [part] = [part for part in manifest.files if part.name == "records.jsonl"]
        return self.store.stream(manifest.key(part))

    async def put(self, draft: str, name: str, piece: int, content: bytes) -> None:
        self._check_draft(draft)
        most = OUTPUTS[self.step].get(name)
        if most is None:
            raise ApiError(404, "not_found", f"This step has no output '{name[:100]}'.")
        if len(content) > PIECE or piece * PIECE + len(content) > most:
            raise ApiError(413, "output_too_large", f"out/{name} may have {most:,} bytes, in pieces of {PIECE:,}.")
        if await self.store.size(f"{self.prefix}/{draft}/{MANIFEST}") is not None:
            raise ApiError(409, "already_sealed", "The outputs of this step are sealed: what they are is settled.")
        await self.store.put(f"{self.prefix}/{draft}/{piece_name(name, piece)}", content)

    async def seal(self, draft: str, body: SealBody) -> None:
        """Once: what is sealed is what counts, whatever becomes of the container."""
        self._check_draft(draft)
        if not body.files.keys() <= OUTPUTS[self.step].keys() - {HIDDEN}:
            raise ApiError(404, "not_found", "This step has other outputs.")
        sealing = Draft(self.store, self.prefix, draft)
        try:
            for name, pieces in body.files.items():
                for n, (size, sha) in enumerate(pieces):
                    await sealing.adopt(DraftFile(piece_name(name, n), 0, size, sha, {"of": name}))
            await sealing.seal(
                {"step": f"transfer of {self.step}", "empty": [name for name, some in body.files.items() if not some]}
            )
        except InfrastructureError as problem:
            # What is not there as it was told, or is sealed with something else, will not be better the next time.
            status = 409 if problem.code in ("upload_incomplete", "draft_already_sealed") else 503
            raise ApiError(status, problem.code, problem.message) from problem

    def _check_draft(self, draft: str) -> None:
        """A container of an earlier try writes nowhere any more."""
        if not draft or draft != self.saved.get(TRANSFER):
            raise refused()


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def transfer_of(plane: ControlPlane, run: str, batch: int, step: str, token: str) -> Transfer:
    """Raises one and the same refusal for whatever is wrong."""
    try:
        id = UUID(run)
    except ValueError:
        raise refused() from None
    row = await plane.core.db.fetchrow(SQL["transfer_run"], id)
    if row is None or row["transfer_key"] is None or step not in KINDS:
        raise refused()
    if not hmac.compare_digest(token_of(row["transfer_key"], str(id), batch, step), token):
        raise refused()
    job = await plane.core.db.fetchrow(SQL["transfer_job"], KINDS[step], row["group_id"], str(id), batch)
    if job is None:
        raise refused()
    payload, saved = orjson.loads(job["payload"]), {} if job["saved"] is None else orjson.loads(job["saved"])
    named: Step = "fetch" if step == "fetch" else "hooks"
    store = open_managed(plane.config)
    return Transfer(plane, store, row["source"], str(id), batch, named, payload, saved, row["session"])
