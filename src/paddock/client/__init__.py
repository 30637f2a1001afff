"""A small client: submit, wait, watch.

    with Client("http://localhost:8080", token) as paddock:
        job = paddock.submit("probe", {"turns": 3})
        print(paddock.wait(job["id"])["result"])

A refusal is a `PaddockError` with the server's code, message and hint. What may be asked twice is asked again when the
line breaks: reads, and work that is submitted, since each submission carries an idempotency key.
"""

from paddock.client.errors import Job, NotFinished, PaddockError, Unreachable
from paddock.client.jobs import Client
from paddock.client.reading import Message, read_events

__all__ = ["Client", "Job", "Message", "NotFinished", "PaddockError", "Unreachable", "read_events"]
