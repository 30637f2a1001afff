"""Making something that must not be there twice, on a server whose answers may be lost.

What we make says whose it is by its labels `paddock.io/...` and by the hash of its spec. So what has its name already is either the
same thing, made by an earlier try or another replica, or somebody else's, and then nobody touches it.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from paddock.runtimes.kubernetes.client import Kubernetes, Object
from paddock.runtimes.kubernetes.errors import ApiError
from paddock.runtimes.kubernetes.resources import Resource

OURS = "paddock.io/"
SPEC_HASH = "paddock.io/spec-hash"
BEING_DELETED = "object is being deleted"


class NameTaken(Exception):
    """Something else has this name."""

    def __init__(self, what: str, name: str, found: Object) -> None:
        labels = (found.get("metadata") or {}).get("labels") or {}
        whose = labels.get("paddock.io/installation")
        told = f"It belongs to the installation {whose}." if whose else "No Paddock made it."
        super().__init__(f"There is another {what} with the name {name} already. {told}")


def spec_hash(spec: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


async def ensure(client: Kubernetes, resource: Resource, namespace: str, manifest: Object) -> Object | None:
    """The object, made now or before by the same start. None: one of this name is still going away, ask again. Raises
    `NameTaken`, and `ApiError` where it was refused or nobody can tell yet whether it was made."""
    name: str = manifest["metadata"]["name"]
    try:
        return await client.create(resource, namespace, manifest)
    except ApiError as problem:
        if problem.code == 409 and BEING_DELETED in problem.message:
            return None
        taken = problem.code == 409 and problem.reason == "AlreadyExists"
        if not taken and not problem.doubt:
            raise
        found = await client.get(resource, namespace, name)
        if found is None:
            if taken:
                return None  # it went away between the two
            raise
    if not is_same(manifest, found):
        raise NameTaken(resource.name.removesuffix("s"), name, found)
    return found


def is_same(manifest: Object, found: Object) -> bool:
    """Whether what is there was made for the same start, by this installation."""
    ours, theirs = manifest["metadata"], found.get("metadata") or {}
    labels, annotations = theirs.get("labels") or {}, theirs.get("annotations") or {}
    meant = {key: value for key, value in ours["labels"].items() if key.startswith(OURS)}
    same = all(labels.get(key) == value for key, value in meant.items())
    return same and annotations.get(SPEC_HASH) == ours["annotations"][SPEC_HASH]
