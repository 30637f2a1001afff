"""What the Kubernetes API gives, as far as Paddock reads it. A field may be missing: the server leaves out what is empty."""

from typing import Any, TypedDict


class Owner(TypedDict, total=False):
    kind: str
    name: str
    uid: str


class Metadata(TypedDict, total=False):
    name: str
    generateName: str
    namespace: str
    uid: str
    resourceVersion: str
    creationTimestamp: str
    deletionTimestamp: str
    deletionGracePeriodSeconds: int
    labels: dict[str, str]
    annotations: dict[str, str]
    ownerReferences: list[Owner]


class Condition(TypedDict, total=False):
    type: str
    status: str
    reason: str
    message: str
    lastTransitionTime: str


class Waiting(TypedDict, total=False):
    reason: str
    message: str


class Running(TypedDict, total=False):
    startedAt: str


class Terminated(TypedDict, total=False):
    exitCode: int
    signal: int
    reason: str
    message: str
    startedAt: str
    finishedAt: str


class ContainerState(TypedDict, total=False):
    waiting: Waiting
    running: Running
    terminated: Terminated


class ContainerStatus(TypedDict, total=False):
    name: str
    ready: bool
    started: bool
    restartCount: int
    image: str
    imageID: str
    state: ContainerState
    lastState: ContainerState
    resources: dict[str, Any]


class PodStatus(TypedDict, total=False):
    phase: str
    reason: str
    message: str
    podIP: str
    startTime: str
    nominatedNodeName: str
    conditions: list[Condition]
    initContainerStatuses: list[ContainerStatus]
    containerStatuses: list[ContainerStatus]


class Pod(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Metadata
    spec: dict[str, Any]
    status: PodStatus


class JobStatus(TypedDict, total=False):
    active: int
    ready: int
    succeeded: int
    failed: int
    terminating: int
    startTime: str
    completionTime: str
    conditions: list[Condition]


class Job(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: Metadata
    spec: dict[str, Any]
    status: JobStatus


class InvolvedObject(TypedDict, total=False):
    kind: str
    name: str
    uid: str


class Event(TypedDict, total=False):
    metadata: Metadata
    involvedObject: InvolvedObject
    type: str
    reason: str
    message: str
    count: int
    firstTimestamp: str | None
    lastTimestamp: str | None
    eventTime: str | None


class Cause(TypedDict, total=False):
    reason: str
    message: str
    field: str


class Details(TypedDict, total=False):
    name: str
    kind: str
    uid: str
    causes: list[Cause]
    retryAfterSeconds: int


class Status(TypedDict, total=False):
    """What the API answers instead of an object when it refuses."""

    kind: str
    status: str
    message: str
    reason: str
    details: Details
    code: int
