"""What only a worker can tell of its sources: whether their commands, catalogs and secrets are on its machine, and whether it
can write where batches are published. Nothing is run."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from paddock.ingest.resources import IngestResources
from paddock.ingest.source_settings import Hook, Source, named_place, read_secret, runtime_of
from paddock.jobs.kinds import Backoff, Kind
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn

STORE = "the object store"
# The check is done within the time that `paddock doctor` waits for it, whatever a store does.
STORE_SECONDS = 5.0


class CheckPayload(BaseModel):
    model_config = ConfigDict(extra="forbid")


async def run_check(turn: Turn[CheckPayload], resources: IngestResources) -> Outcome:
    """Tells the problems of each source on the machine of a worker, and of the store: nothing where all is well."""
    found: dict[str, list[str]] = {}
    for name, source in resources.sources.items():
        if runtime_of(resources.config, source) == "local":
            found[name] = await asyncio.to_thread(_all_problems, resources, source)
    return done({"sources": found, "store": await _store(resources)})


def _all_problems(resources: IngestResources, source: Source) -> list[str]:
    hooks = [one for name in source.hooks for one in problems(f"the hook '{name}'", resources.hooks[name])]
    return [*problems("the source", source), *hooks]


def problems(what: str, settings: Source | Hook) -> Iterator[str]:
    folder = settings.folder
    if folder is not None and not folder.is_dir():
        yield f"the folder {folder} of {what} is not there"
    command = settings.command[0]
    if not _there(command, folder):
        yield f"the command {command!r} of {what} is not there"
    catalog = settings.catalog if isinstance(settings, Source) else None
    if catalog is not None and not os.access(catalog, os.R_OK):
        yield f"the catalog {catalog} cannot be read"
    for variable, place in settings.secrets.items():
        if read_secret(place) is None:
            yield f"the secret {variable} of {what} is not there: this worker does not have {named_place(place)}"


def _there(command: str, folder: Path | None) -> bool:
    if "/" not in command:
        return shutil.which(command) is not None
    path = command if folder is None else folder / command
    return os.path.isfile(path) and os.access(path, os.X_OK)


async def _store(resources: IngestResources) -> str | None:
    from paddock.log import scrub

    if not resources.config.has_store:
        return "there is no object store (PADDOCK_OBJECT_STORE)"
    try:
        async with asyncio.timeout(STORE_SECONDS):
            await resources.store.check()
    except TimeoutError:
        return f"it gave no answer within {STORE_SECONDS:.0f} s"
    except Exception as problem:  # whatever a store's library raises, it is what is told
        return scrub(getattr(problem, "message", None) or f"{type(problem).__name__}: {problem}", limit=300)
    return None


CHECK = Kind(
    name="ingest_check",
    payload=CheckPayload,
    handler=run_check,
    retry=Backoff(limit=0, cluster_limit=0),
    retry_unclassified=False,
    turn_timeout=timedelta(seconds=30),
)
