"""The Python client: jobs, and graphs from the mapping to the DataFrame.

    from paddock.client import connect

    client = connect()
    instance = client.instances.create_and_wait("flights")
    conn = client.instances.connect(instance)
    conn.query_df("MATCH (a:Airport)-[:ROUTE]->(b) RETURN a.code, count(b) AS routes ORDER BY routes DESC LIMIT 5")

A refusal is a `PaddockError` with the server's code, message and hint, of a class of its own for each code that a program
may want to tell apart. What may be asked twice is asked again when the line breaks: reads, queries, and work that is
submitted, since each submission carries an idempotency key.
"""

from paddock.client.client import Client, connect
from paddock.client.errors import (
    AlgorithmFailed,
    Ambiguous,
    Busy,
    ConcurrencyLimitExceeded,
    Conflict,
    EngineRestarted,
    InstanceFailed,
    InstanceGone,
    InstanceNotRunning,
    Invalid,
    Job,
    NoRuntime,
    NotAllowed,
    NotAuthenticated,
    NotFinished,
    NotFound,
    NotLoadable,
    NotOneRow,
    PaddockError,
    QueryCrashed,
    QueryFailed,
    QueryOutOfMemory,
    QueryTimeout,
    ReadOnly,
    ResourceLocked,
    SnapshotFailed,
    SnapshotInUse,
    Unavailable,
    Unreachable,
)
from paddock.client.graph import GraphConnection
from paddock.client.reading import Message, read_events
from paddock.client.results import MissingPackage, Result, ResultTruncated

__all__ = [
    "AlgorithmFailed",
    "Ambiguous",
    "Busy",
    "Client",
    "ConcurrencyLimitExceeded",
    "Conflict",
    "EngineRestarted",
    "GraphConnection",
    "InstanceFailed",
    "InstanceGone",
    "InstanceNotRunning",
    "Invalid",
    "Job",
    "Message",
    "MissingPackage",
    "NoRuntime",
    "NotAllowed",
    "NotAuthenticated",
    "NotFinished",
    "NotFound",
    "NotLoadable",
    "NotOneRow",
    "PaddockError",
    "QueryCrashed",
    "QueryFailed",
    "QueryOutOfMemory",
    "QueryTimeout",
    "ReadOnly",
    "ResourceLocked",
    "Result",
    "ResultTruncated",
    "SnapshotFailed",
    "SnapshotInUse",
    "Unavailable",
    "Unreachable",
    "connect",
    "read_events",
]
