"""The kinds of objects that are asked for, by where the API server has them."""

from typing import NamedTuple


class Resource(NamedTuple):
    root: str
    name: str

    def path(self, namespace: str | None, *parts: str) -> str:
        place = "" if namespace is None else f"/namespaces/{namespace}"
        return "/".join((f"{self.root}{place}/{self.name}", *parts))


PODS = Resource("/api/v1", "pods")
EVENTS = Resource("/api/v1", "events")
NAMESPACES = Resource("/api/v1", "namespaces")
QUOTAS = Resource("/api/v1", "resourcequotas")
JOBS = Resource("/apis/batch/v1", "jobs")
ACCESS_REVIEWS = Resource("/apis/authorization.k8s.io/v1", "selfsubjectaccessreviews")
RULES_REVIEWS = Resource("/apis/authorization.k8s.io/v1", "selfsubjectrulesreviews")
