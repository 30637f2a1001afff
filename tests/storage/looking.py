"""What a test wants to know of a store."""

from paddock.storage.store import Store


async def keys(store: Store, prefix: str = "", *, unfinished: bool = False) -> list[str]:
    return sorted([entry.key async for entry in store.list(prefix, unfinished=unfinished)])
