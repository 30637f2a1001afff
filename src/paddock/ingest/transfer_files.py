"""What passes between a step's containers and the control plane: the names of inputs and outputs, and how outputs stand in the
store until the worker reads them. Light: the containers load it.
"""

import hmac
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from paddock.ingest.outputs import MAX_FILE

if TYPE_CHECKING:
    from paddock.storage.store import Store

Step = Literal["fetch", "hooks"]
PIECE = 8 << 20
# The whole standard output of a tap, and how it ended.
MESSAGES, MESSAGES_BYTES = "messages.jsonl", 1 << 30
EXIT_CODE, EXIT_CODE_BYTES = "exit-code", 4
# What the values of the step's secrets look like, told by `fetch`. It is never sealed: no record depends on it.
HIDDEN, HIDDEN_BYTES = "hidden.json", PIECE
# In the environment of `fetch`, with a number behind it: the value of a secret.
HIDDEN_VARIABLE = "PADDOCK_HIDDEN_"
# How many of them there are to be.
HIDDEN_COUNT = "PADDOCK_HIDES"
# What of each step counts, and how long each file may be. One byte more is taken than is read: too much is seen as too much.
OUTPUTS: Mapping[str, Mapping[str, int]] = {
    "fetch": {
        **dict.fromkeys(("records.jsonl", "session.json"), MAX_FILE + 1),
        MESSAGES: MESSAGES_BYTES,
        EXIT_CODE: EXIT_CODE_BYTES,
        HIDDEN: HIDDEN_BYTES,
    },
    "hooks": {
        **dict.fromkeys(("features.jsonl", "rejections.jsonl", "errors.jsonl"), MAX_FILE + 1),
        HIDDEN: HIDDEN_BYTES,
    },
}
CONFIG, SESSION, CATALOG, STORED = "config.json", "session.json", "catalog.json", "stored.jsonl"
# In a job's saved state: the draft that its container's outputs go to.
TRANSFER = "transfer"
# Beside a fetch's secrets: the catalog that the control plane should give, where it does not have it.
CATALOG_MISSING = "catalog_missing"


def no_catalog(path: object) -> str:
    return f"The control plane cannot read the catalog {path}, which it gives to the containers."


def token_of(key: bytes, run: str, batch: int, step: str) -> str:
    return hmac.new(key, f"{run}/{batch}/{step}".encode(), sha256).hexdigest()


def piece_name(name: str, piece: int) -> str:
    return f"{name}.{piece:05d}"


async def read_hidden_sums(store: "Store", place: str) -> bytes | None:
    """What `fetch` told of the step's secrets, below the draft at `place`. None: nothing, or it cannot be had now."""
    from paddock.jobs.errors import InfrastructureError

    key = f"{place}/{piece_name(HIDDEN, 0)}"
    try:
        return None if await store.size(key) is None else await store.read(key)
    except InfrastructureError:
        return None


async def sealed_outputs(
    store: "Store", prefix: str, draft: str
) -> Mapping[str, Sequence[tuple[str, str | None]]] | None:
    """Of each output its pieces, by key and sum. None: the draft is not sealed."""
    from paddock.storage.drafts import MANIFEST, read_manifest

    key = f"{prefix}/{draft}/{MANIFEST}"
    if await store.size(key) is None:
        return None
    manifest = await read_manifest(store, key, sha256(await store.read(key)).hexdigest())
    found: dict[str, list[tuple[str, str | None]]] = {name: [] for name in manifest.facts.get("empty", [])}
    for part in manifest.files:
        found.setdefault(part.facts["of"], []).append((manifest.key(part), part.sha256))
    return found
