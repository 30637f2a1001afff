"""What a request for a run becomes, whoever asks: a person or a schedule."""

from paddock.config import Config
from paddock.ingest.runs import From, NewRun
from paddock.ingest.source_settings import runtime_of, sources_from
from paddock.jobs.errors import Refused


def no_source(name: str) -> Refused:
    return Refused("unknown_source", f"There is no source '{name[:100]}'.", status=404)


def new_run(
    config: Config,
    name: str,
    *,
    owner: str,
    begin: From = "last",
    session: str | None = None,
    batch_size: int | None = None,
    limit: int | None = None,
) -> NewRun:
    source = sources_from(config).get(name)
    if source is None:
        raise no_source(name)
    if not config.has_store:
        raise Refused(
            "no_object_store",
            "There is no object store to publish to.",
            hint="Set PADDOCK_OBJECT_STORE to a folder or a bucket.",
        )
    return NewRun(
        source=name,
        owner=owner,
        batch_size=batch_size or source.batch_size,
        max_failed_batches=source.max_failed_batches,
        begin=begin,
        session=session,
        limit=limit,
        runtime=runtime_of(config, source),
    )
