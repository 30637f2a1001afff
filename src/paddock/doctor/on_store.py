"""The object store: the way there and back."""

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from uuid import uuid4

from paddock.config import Config
from paddock.doctor.findings import Finding, broken, ok, reason_of
from paddock.jobs.core import Core
from paddock.log import scrub

if TYPE_CHECKING:
    from paddock.storage.store import Store


async def object_store(core: Core, config: Config) -> AsyncIterator[Finding]:
    from paddock.storage.store import open_store

    began = time.monotonic()
    try:
        store = open_store(config.object_store)
        await write_read_delete(store)
        needs_rule = await store.needs_lifecycle_rule()
    except Exception as problem:  # whatever a store's library raises, it is this finding
        told = scrub(f"{config.object_store}: {reason_of(problem)}", limit=500)
        yield broken("object store", told, "Check PADDOCK_OBJECT_STORE, and that its credentials may write and delete.")
        return
    told = f"{scrub(store.url)}: write, read, delete in {1000 * (time.monotonic() - began):.0f} ms."
    if needs_rule:
        # Uploads that were killed cannot be listed here; only the store itself can take them away.
        told += " See that it has a lifecycle rule that aborts incomplete multipart uploads after a week"
        told += ", or let Paddock list them (s3:ListBucketMultipartUploads)." if store.url.startswith("s3:") else "."
    yield ok("object store", told)


async def write_read_delete(store: "Store") -> None:
    key, content = f".paddock-doctor/{uuid4()}", b"A small object that proves the way there and back."
    await store.put(key, content)
    try:
        if await store.read(key) != content:
            raise ValueError("what was read is not what was written")
    finally:
        await store.delete([key])
